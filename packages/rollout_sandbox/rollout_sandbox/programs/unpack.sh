# Makes DIRECTORY new, or unpacks into it a gzipped tar archive, which is removed, or its base64 in pieces. No link may
# stand at the COUNT FOLDERs below DIRECTORY.
#
# usage: sh -c "$(cat unpack.sh)" unpack new DIRECTORY | unpack into DIRECTORY COUNT FOLDER… (@ARCHIVE | BASE64…)
directory=$2
if [ "$1" = new ]; then
    # A link is removed, or followed where the sandbox's own system holds it, so that nobody can remove it.
    if [ -L "$directory" ] && ! rm -f -- "$directory" 2>/dev/null; then
        directory=$(readlink -f -- "$directory") || exit
    fi
    if [ -e "$directory" ] || [ -L "$directory" ]; then
        # Without this, a user other than root cannot delete what is in a read-only directory.
        [ -d "$directory" ] && [ ! -L "$directory" ] && chmod -R u+rwx -- "$directory" 2>/dev/null
        rm -rf -- "$directory" || exit
    fi
    # Not -p for the last: if something appeared in between, this must fail.
    mkdir -p -- "${directory%/*}/" && mkdir -m 755 -- "$directory"
    exit
fi
umask 022
mkdir -p -- "$directory" && cd -- "$directory" || exit
count=$3
shift 3
while [ "$count" -gt 0 ]; do
    [ ! -L "./$1" ] || rm -f -- "./$1" || exit
    count=$((count - 1))
    shift
done
case $1 in
@*)
    tar -xzf "${1#@}"
    code=$?
    rm -f -- "${1#@}"
    exit "$code"
    ;;
*) printf '%s' "$@" | base64 -d | tar -xzf - ;;
esac
