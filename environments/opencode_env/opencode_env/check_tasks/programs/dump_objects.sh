# dump_objects.sh REPOSITORY TARGET: writes all objects of a git repository into a file, and prints its size.
command -v git >/dev/null || exit 90
git -c safe.directory='*' --git-dir="$1" cat-file --batch-all-objects --batch --unordered > "$2" 2>/dev/null
wc -c < "$2"
