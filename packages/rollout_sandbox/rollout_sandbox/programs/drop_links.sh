# Removes the symbolic links below DIRECTORY… that lead to what a check has and the agent has not: into /proc (the
# check's own command line, environment, descriptors and directory), or below HIDDEN or VERIFIER but not into SHARED.
#
# usage: sh drop_links.sh SHARED HIDDEN VERIFIER DIRECTORY…
#
# Every DIRECTORY is absolute. Folders that their owner cannot list are opened to it: a check can name what is in them.
export shared="$1" hidden="$2" verifier="$3"
shift 3
# From here a link through the directory of whoever follows it is seen to lead into /proc.
cd /proc || exit
# All standard streams are pipes here, so that a link to one of them is seen to lead into /proc, and not to a file.
# `-m` says where a link leads that leads nowhere yet, as to a process to come; not every readlink has it. Very many
# links are asked about at once, each apart only if the answers cannot be told apart by their lines.
find "$@" -xdev \( -type d ! -perm -500 -exec chmod u+rx {} \; \) -o -type l -exec sh -c '
drop() {
    case $1/ in
    "$shared"/*) ;;
    /proc/* | "$hidden"/* | "$verifier"/*) rm -f -- "$2" ;;
    esac
}
found=$(readlink -m -- "$@" <&2) && [ "$(printf "%s\n" "$found" | wc -l)" -eq $# ] && {
    printf "%s\n" "$found" | while IFS= read -r target; do
        drop "$target" "$1"
        shift
    done
    exit
}
for link; do
    drop "$(readlink -m -- "$link" <&2 || readlink -f -- "$link" <&2 || echo /proc)" "$link"
done' drop-links {} + 2>&1 >/dev/null | cat >/dev/null
