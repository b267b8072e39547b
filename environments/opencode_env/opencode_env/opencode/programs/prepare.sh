# Claims a state directory, unpacks an archive into it, makes the working directory, and prints the state directory:
# prepare.sh STATE_BASE WORKDIR PROGRAM_DIR (@ARCHIVE | BASE64…). Exit code 3: no `opencode` in PROGRAM_DIR.
base=$1 workdir=$2 programs=$3
shift 3
[ -x "$programs/opencode" ] || { echo "opencode-env: there is no $programs/opencode" >&2; exit 3; }
umask 022
mkdir -p "${base%/*}" || exit 1
state=$base number=1
until mkdir -m 700 "$state" 2>/dev/null; do
    number=$((number + 1)) state=$base-$number
    [ "$number" -lt 100 ] || { echo "opencode-env: cannot make a state directory like $base" >&2; exit 1; }
done
case $1 in
@*) tar -xf "${1#@}" -C "$state" && rm -f "${1#@}" || exit 1 ;;
*) printf '%s' "$@" | base64 -d | tar -xf - -C "$state" || exit 1 ;;
esac
[ -d "$workdir" ] || mkdir -p "$workdir" || exit 1
printf 'state=%s\n' "$state"
