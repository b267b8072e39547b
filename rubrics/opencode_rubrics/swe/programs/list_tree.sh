# Lists a directory: gzipped, in base64, one line for each file and link below it, repositories of git left out.
#
# usage: sh -c "$(cat list_tree.sh)" list-tree DIRECTORY
#
# f HASH NAME (a file; GNU escapes a name with a line end, and such a line begins with a backslash), x NAME (a file that
# can be executed), l NAME<TAB>TARGET (a link).
cd -- "$1" || exit 90
for program in find xargs sha256sum sed gzip base64; do command -v $program >/dev/null || exit 91; done
{
    find . -name .git -prune -o -type f -print0 | xargs -0 sha256sum 2>/dev/null | sed 's/^\([0-9a-f]\{24\}\)[0-9a-f]*/f \1/'
    find . -name .git -prune -o -type f -perm -100 -print | sed 's/^/x /'
    find . -name .git -prune -o -type l -exec sh -c 'for link; do printf "l %s\t%s\n" "$link" "$(readlink "$link")"; done' links {} +
} | gzip -1 | base64
