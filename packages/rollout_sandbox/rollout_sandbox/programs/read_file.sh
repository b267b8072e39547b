# read_file.sh PATH BYTES: prints the first BYTES bytes of a regular file.
[ -e "$1" ] || { echo "no such file" >&2; exit 1; }
[ -f "$1" ] || { echo "not a regular file" >&2; exit 1; }
exec head -c "$2" -- "$1"
