# Prints a regular file of at most MAX_BYTES and refuses everything else, without ever blocking on it.
#
# usage: sh -c "$(cat read_regular.sh)" read-regular PATH MAX_BYTES [look]
#
# With `look` it prints nothing.
#
# Exit codes (FileState in bounded_file.py): 0 printed, 40 absent, 41 symbolic link, 42 not a regular file,
# 43 unreadable, 44 larger than MAX_BYTES. Any other code is a failure of the sandbox or its tools.
path=$1 max_bytes=$2

[ -L "$path" ] && exit 41
[ -e "$path" ] || exit 40
[ -f "$path" ] || exit 42
[ -r "$path" ] || exit 43
size=$(head -c "$((max_bytes + 1))" -- "$path" | wc -c) || exit 1
[ "$size" -gt "$max_bytes" ] && exit 44
[ "${3-}" = look ] || head -c "$max_bytes" -- "$path"
