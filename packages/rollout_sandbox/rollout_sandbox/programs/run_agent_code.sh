#!/bin/sh
# Runs a program of the agent's for a verify command, apart from it, and reports what it did as data.
#
# usage: run-agent-code [--timeout SECONDS] [--max-output BYTES] [--stdin FILE] [--status FILE] [--] COMMAND [WORD]…
#
# Prints at most BYTES of each stream of the command. The file of --status gets `exit N`, `signal N` or `timeout`.
# Exits 0 whatever the command did: its exit code is not a verdict. Exits 125 if it could run nothing, which is an error
# of the rollout. The command reads the work directory, where it starts unless the current directory is below it or in
# $AGENT_CODE_DIR; it writes $AGENT_CODE_DIR and nothing else that verify commands use; links that it leaves there to
# what only those have are removed. It runs in namespaces of its
# own where bubblewrap can make them, else (as root) as a user of its own.
timeout=60 max=1048576 stdin=/dev/null status=/dev/null
shared=${AGENT_CODE_DIR:?} workdir=${AGENT_CODE_WORKDIR:?}
scoring=${shared%/*}

fail() {
    printf '%s\n' "$1" >"$scoring/tmp/.failed"
    printf 'run-agent-code: %s\n' "$1" >&2
    exit 125
}
# What a program that ran before can have brought about is not a failure of ours.
refuse() {
    printf 'run-agent-code: %s\n' "$1" >&2
    exit 125
}
while [ $# -gt 0 ]; do
    case $1 in
    --timeout) timeout=${2:?} && shift 2 ;;
    --max-output) max=${2:?} && shift 2 ;;
    --stdin) stdin=${2:?} && shift 2 ;;
    --status) status=${2:?} && shift 2 ;;
    --) shift && break ;;
    -*) fail "unknown option $1" ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || fail "no command to run"
case $(ls /proc/self/fd) in *[0-9][0-9]*) fail "a descriptor above 9 is open, which the program would inherit" ;; esac
[ -r "$stdin" ] || refuse "cannot read $stdin"
here=$(mktemp -d "$scoring/tmp/run.XXXXXX") || fail "no room in the temporary directory"
trap 'rm -rf -- "$here"' EXIT
case $PWD/ in "$shared"/* | "${workdir%/}"/*) start=$PWD ;; *) start=$workdir ;; esac

# By their paths: busybox's `timeout` would take its own.
bwrap=$(command -v bwrap) setpriv=$(command -v setpriv)
if [ -n "$bwrap" ] && "$bwrap" --unshare-all --ro-bind / / true 2>/dev/null; then
    set -- --bind "$shared" "$shared" --chdir "$start" "$@"
    [ "$workdir" = / ] || set -- --ro-bind "$workdir" "$workdir" "$@"
    [ ! -d /logs ] || set -- --tmpfs /logs "$@"
    set -- "$bwrap" --unshare-all --die-with-parent --new-session --as-pid-1 --cap-drop ALL --uid 1001 --gid 1001 \
        --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --tmpfs "$scoring" "$@"
    ended() { :; }
elif [ "$(id -u)" = 0 ] && [ -n "$setpriv" ] && "$setpriv" --reuid 61000 --regid 61000 --clear-groups true 2>/dev/null; then
    user=$((61001 + $$ % 3000))
    chown -hR "$user:$user" -- "$shared"
    set -- "$setpriv" --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set -all "$@"
    # By a process of that user, whose `kill -1` reaches all of that user's at once and no other's.
    ended() { "$setpriv" --reuid "$user" --regid "$user" --clear-groups sh -c 'kill -KILL -1' 2>/dev/null; }
else
    fail "the agent's code cannot be kept apart here: it needs bubblewrap, or root and setpriv"
fi
cd -- "$start" 2>/dev/null || cd -- "$workdir" || refuse "cannot enter $workdir"

began=$(date +%s)
{
    {
        env -i PATH="$PATH" HOME=/tmp LANG=C.UTF-8 AGENT_CODE_DIR="$shared" timeout -k 2 "$timeout" "$@" \
            <"$stdin" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
        echo $? >"$here/code"
        ended
    } 2>&1 >&3 | head -c "$max" >"$here/err"
} 3>&1 | head -c "$max" >"$here/out"
sh "$scoring/bin/drop-links" "$shared" "$scoring" /logs "$shared/"
code=$(cat "$here/code")
if [ "$code" -ge 124 ] && [ $(($(date +%s) - began)) -ge "${timeout%.*}" ]; then
    echo timeout
elif [ "$code" -gt 128 ]; then
    echo "signal $((code - 128))"
else
    echo "exit $code"
fi >"$status"
cat "$here/err" >&2
cat "$here/out"
