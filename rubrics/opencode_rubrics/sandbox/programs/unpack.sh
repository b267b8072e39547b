# Unpacks ARCHIVE into DIRECTORY, which it holds, and removes it; first, with `new`, makes DIRECTORY new.
#
# usage: sh -c "$(cat unpack.sh)" unpack new DIRECTORY | unpack ARCHIVE DIRECTORY
#
# A link at DIRECTORY is removed, or followed where the sandbox's own system holds it, so that nobody can remove it.
directory=$2
if [ -L "$directory" ] && ! rm -f -- "$directory" 2>/dev/null; then directory=$(readlink -f -- "$directory") || exit; fi
if [ "$1" = new ]; then
    if [ -e "$directory" ] || [ -L "$directory" ]; then
        # Without this, a user other than root cannot delete what is in a read-only directory.
        [ -d "$directory" ] && [ ! -L "$directory" ] && chmod -R u+rwx -- "$directory" 2>/dev/null
        rm -rf -- "$directory" || exit
    fi
    # Not -p for the last: if something appeared in between, this must fail.
    mkdir -p -- "${directory%/*}/" && mkdir -m 755 -- "$directory"
    exit
fi
cd -- "$directory" && tar -xzf "$1" && rm -f -- "$1"
