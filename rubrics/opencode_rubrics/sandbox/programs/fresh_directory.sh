# Makes DIRECTORY new and empty, whatever stands in its place: files, links, directories without permissions.
#
# usage: sh -c "$(cat fresh_directory.sh)" fresh-directory DIRECTORY
#
# No link is followed: not at the directory, not at its parent, not inside.
directory=$1
parent=${directory%/*}

if [ -L "$parent" ] || { [ -e "$parent" ] && [ ! -d "$parent" ]; }; then
    rm -f -- "$parent" || exit 1
fi
mkdir -p -- "$parent" || exit 1
if [ -L "$directory" ] || { [ -e "$directory" ] && [ ! -d "$directory" ]; }; then
    rm -f -- "$directory" || exit 1
fi
if [ -d "$directory" ]; then
    # Without this, a user other than root cannot delete what is in a read-only directory.
    chmod -R u+rwx -- "$directory" 2>/dev/null
    rm -rf -- "$directory" || exit 1
fi
# Not -p: if something appeared in between, this must fail.
mkdir -- "$directory"
