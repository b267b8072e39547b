# Removes the symbolic links below DIRECTORY… that lead to what a check has and the agent has not: into /proc (the
# check's own command line, environment and descriptors), or below HIDDEN or VERIFIER but not into SHARED.
#
# usage: sh drop_links.sh SHARED HIDDEN VERIFIER DIRECTORY…
export shared="$1" hidden="$2" verifier="$3"
shift 3
# All standard streams are pipes here, so that a link to one of them is seen to lead into /proc, and not to a file.
find "$@" -xdev -type l -exec sh -c '
for link; do
    case $(readlink -f -- "$link" <&2)/ in
    "$shared"/*) ;;
    /proc/* | "$hidden"/* | "$verifier"/*) rm -f -- "$link" ;;
    esac
done' drop-links {} + 2>&1 >/dev/null | cat >/dev/null
