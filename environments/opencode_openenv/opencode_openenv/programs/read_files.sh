# Prints the regular files of a directory and those one level below: a line each, of path and head, both in base64.
#
# usage: sh -c "$(cat read_files.sh)" read-files DIRECTORY BELOW_BYTES MOST HEAD_BYTES
#
# No link is followed. Of files of BELOW_BYTES or more, and of those after the first MOST, nothing is printed.
directory=$1 below=$2 most=$3 head=$4
[ -d "$directory" ] && [ ! -L "$directory" ] || exit 0
find "$directory" -maxdepth 2 -type f -size "-${below}c" -exec sh -c '
    head=$1
    shift
    for path; do
        printf "%s" "$path" | base64 | tr -d "\n"
        printf " "
        head -c "$head" -- "$path" 2>/dev/null | base64 | tr -d "\n"
        printf "\n"
    done' read-files "$head" {} + 2>/dev/null | head -n "$most"
