# write_file.sh PATH BYTES: writes so many bytes of its input to a file and makes its parents. What is refused is read to
# its end all the same: podman may lose the words of a program that leaves its input unread.
head -c "$2" | {
    refuse() { [ -z "$1" ] || echo "$1" >&2; cat >/dev/null; exit 1; }
    case $1 in */*) mkdir -p -- "${1%/*}/" || refuse ;; esac
    [ ! -e "$1" ] || [ -f "$1" ] || refuse "not a regular file"
    cat >"$1" || refuse
}
