# Runs a command whose end must not be missed, and prints how it ended: remote_run.sh DIRECTORY MOST COMMAND [ARGUMENT…]
# Without a command it waits up to SECONDS for one that was started so: remote_run.sh DIRECTORY MOST SECONDS
# First a line: `ended CODE OUT ERR`, then OUT bytes of standard output and ERR of standard error (the last MOST of
# each); or `running`, or `lost` when the command is gone and nobody wrote its end; or `full`, when there is no space.
directory=$1 most=$2 memory=/dev/shm/${1##*/}
shift 2

claim() { mkdir -p "$1" && echo $$ >"$1/pid"; } 2>/dev/null

ended() {
    tail -c "$most" "$directory/out" >"$directory/out.end"
    tail -c "$most" "$directory/err" >"$directory/err.end"
    printf 'ended %s %s %s\n' "$1" "$(($(wc -c <"$directory/out.end")))" "$(($(wc -c <"$directory/err.end")))"
    cat "$directory/out.end" "$directory/err.end"
    exit 0 # also when the command removed its output: any other code says that this shell did not come so far
}

case $#:$1 in
1:wait=*)
    [ -s "$directory/pid" ] || directory=$memory
    left=$((${1#wait=} * 5))
    while [ ! -s "$directory/code" ]; do
        [ -s "$directory/pid" ] && kill -0 "$(cat "$directory/pid")" 2>/dev/null || {
            [ -s "$directory/code" ] && break
            echo lost
            exit
        }
        [ "$left" -gt 0 ] || { echo running; exit; }
        left=$((left - 1))
        sleep 0.2
    done
    ended "$(cat "$directory/code")"
    ;;
*)
    umask 077
    # On a full disk, which the agent may have filled, a command that only reads must still say what it finds.
    claim "$directory" || { directory=$memory; claim "$directory"; } || { echo full; exit; }
    (umask 022; exec "$@") >"$directory/out" 2>"$directory/err" </dev/null
    code=$?
    echo "$code" >"$directory/code"
    ended "$code"
    ;;
esac
