# Claims a state directory, unpacks the archive into it, makes the working directory and prints the directory's path:
# prepare.sh STATE_BASE ARCHIVE WORKDIR
base=$1 archive=$2 workdir=$3
umask 022
mkdir -p "${base%/*}" || exit 1
state=$base number=1
until mkdir -m 700 "$state" 2>/dev/null; do
    number=$((number + 1)) state=$base-$number
    [ "$number" -lt 100 ] || { echo "opencode-env: cannot make a state directory like $base" >&2; exit 1; }
done
tar -xf "$archive" -C "$state" || exit 1
rm -f "$archive"
[ -d "$workdir" ] || mkdir -p "$workdir" || exit 1
printf '%s\n' "$state"
