# Claims a state directory, unpacks an archive into it, makes the working directory, and prints the state directory:
# prepare.sh STATE SESSION WORKDIR PROGRAM_DIR (@ARCHIVE | BASE64…). Exit code 3: no `opencode` in PROGRAM_DIR.
# Without SESSION, STATE is where the directory's name begins. With it, STATE is the directory of the segments before,
# whose processes have ended. It is made anew, and keeps what belongs to the conversation (the store without what OpenCode
# could run or fetch on its account, and the log) and what is the agent's own; nothing is followed out of it.
base=$1 session=$2 workdir=$3 programs=$4
shift 4
[ -x "$programs/opencode" ] || { echo "opencode-env: there is no $programs/opencode" >&2; exit 3; }
umask 022
kept=$base.kept store=data/opencode

directory() { [ -d "$1" ] && [ ! -L "$1" ]; }
drop() {
    ! directory "$1" || chmod -R u+rwX "$1" 2>/dev/null
    rm -rf "$1" || exit 1
}
keep() { # NAME under the state directory, as NEW_NAME under $kept, if it is a file or a directory of its own
    if [ -L "$base/$1" ] || { [ ! -f "$base/$1" ] && [ ! -d "$base/$1" ]; }; then return; fi
    mkdir -p "$(dirname "$kept/$2")" && mv "$base/$1" "$kept/$2" || exit 1
}
put_back() {
    for name in "$@"; do
        [ -e "$kept/$name" ] || continue
        rm -rf "$base/$name" && mkdir -p "$base/$(dirname "$name")" && mv "$kept/$name" "$base/$name" || exit 1
    done
}

if [ -n "$session" ]; then
    for part in "$base" "$base/data" "$base/$store"; do
        directory "$part" || { echo "opencode-env: the store of the conversation is gone" >&2; exit 1; }
        chmod u+rwx "$part" || exit 1
    done
    drop "$kept"
    mkdir -m 700 "$kept" && mkdir "$kept/store" || exit 1
    # What else stands beside the store, such as auth.json, can name configuration that OpenCode fetches.
    for name in opencode.db opencode.db-wal tool-output; do keep "$store/$name" "store/$name"; done
    drop "$base/$store"
    mv "$kept/store" "$base/$store" || exit 1
    for name in cache tmp; do ! directory "$base/$name" || chmod u+rwx "$base/$name" || exit 1; done
    ! directory "$base/cache" || drop "$base/cache/opencode"
    ! directory "$base/tmp" || keep tmp/opencode tmp/opencode
    for name in data cache home; do keep "$name" "$name"; done
    for name in events.jsonl stderr.log; do [ ! -f "$base/$name" ] || keep "$name" "$name"; done
    drop "$base"
    mkdir -m 700 "$base" || exit 1
    state=$base
else
    mkdir -p "${base%/*}" || exit 1
    state=$base number=1
    until mkdir -m 700 "$state" 2>/dev/null; do
        number=$((number + 1)) state=$base-$number
        [ "$number" -lt 100 ] || { echo "opencode-env: cannot make a state directory like $base" >&2; exit 1; }
    done
fi
case $1 in
@*) tar -xf "${1#@}" -C "$state" && rm -f "${1#@}" || exit 1 ;;
*) printf '%s' "$@" | base64 -d | tar -xf - -C "$state" || exit 1 ;;
esac
if [ -n "$session" ]; then
    put_back home cache data tmp/opencode events.jsonl stderr.log
    drop "$kept"
    cd "$state" || exit 1
    HOME=$state TMPDIR=$state/tmp XDG_CONFIG_HOME=$state/config BUN_RUNTIME_TRANSPILER_CACHE_PATH=0 BUN_BE_BUN=1 \
        "$programs/opencode" store.js "$store/opencode.db" "$session" "$workdir" || exit 1
fi
[ -d "$workdir" ] || mkdir -p "$workdir" || exit 1
printf 'state=%s\n' "$state"
