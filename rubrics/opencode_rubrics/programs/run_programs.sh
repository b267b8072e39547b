# Runs one program for each of several inputs, each apart from the others (see run_agent_code.sh), in a box of its own.
#
# usage: sh run_programs.sh COUNT SECONDS TOTAL_SECONDS MEMORY_KIB PROCESSES OUTPUT_BYTES KEPT COMMAND [WORD]…
#
# Below the directory of this script lie `files/`, which the program gets anew each time, and `inputs/1` to COUNT. Writes
# `results`: for each input a line `LENGTH_OF_OUT LENGTH_OF_ERR LENGTH_OF_KEPT STATUS`, then these bytes; lengths are -1
# where there is no such file. Exit code 125: a program could not be kept apart. Empties the box's temporary
# directories, which hold nothing but what programs leave.
here=$(cd -- "$(dirname -- "$0")" && pwd) shared=${AGENT_CODE_DIR:?} count=$1 seconds=$2 total=$3 memory=$4 processes=$5
output=$6 kept=$7
shift 7
scoring=${shared%/*}
limited='ulimit -v "$1"; ulimit -u "$2" 2>/dev/null || ulimit -p "$2"; ulimit -c 0; shift 2; exec "$@"'

length() { if [ -f "$1" ]; then wc -c <"$1" | tr -d ' '; else echo -1; fi; }
emptied() {
    for place in /tmp /var/tmp /dev/shm /dev/mqueue /run/lock; do
        find "$place" -mindepth 1 -maxdepth 1 ! -path "$scoring" -exec rm -rf -- {} + 2>/dev/null
    done
    ipcrm --all 2>/dev/null
    chmod -R u+rwx -- "$shared" && rm -rf -- "$shared" && mkdir -m 755 -- "$shared"
}
began=$(date +%s)
: >"$here/results"
number=0
while [ "$number" -lt "$count" ]; do
    number=$((number + 1))
    left=$((total - $(date +%s) + began))
    if [ "$left" -le 0 ]; then
        echo "-1 -1 -1 not reached" >>"$here/results"
        continue
    fi
    [ "$left" -lt "${seconds%.*}" ] || left=$seconds
    emptied >/dev/null 2>&1
    mkdir -- "$shared/program" && cp -R -- "$here/files/." "$shared/program/" && chmod -R u+x -- "$shared/program"
    cd -- "$shared/program" || exit 1
    rm -f -- "$here/status" "$here/kept"
    run-agent-code --timeout "$left" --max-output "$output" --stdin "$here/inputs/$number" --status "$here/status" \
        -- sh -c "$limited" program "$memory" "$processes" "$@" >"$here/out" 2>"$here/err"
    [ -f "$here/status" ] || { cat "$here/err" >&2; exit 125; }
    cd -- "$here" || exit 1
    if [ -n "$kept" ] && [ -f "$shared/program/$kept" ] && [ ! -L "$shared/program/$kept" ]; then
        head -c 67108864 -- "$shared/program/$kept" >"$here/kept"
    fi
    printf '%s %s %s %s\n' "$(length out)" "$(length err)" "$(length kept)" "$(cat status)" >>results
    for part in out err kept; do [ ! -f "$part" ] || cat "$part" >>results; done
done
