# Runs one task command in the sandbox and keeps its output bounded.
#
# usage: OPENCODE_COMMAND=COMMAND sh -c "$(cat run_command.sh)" run-command WORKDIR SECONDS KILL_AFTER TAIL_BYTES TOOLS
#
# The exit code is the command's own (124, 137 or 143 when `timeout` ended it). Output goes to files first:
# a service that the command leaves running would otherwise hold the pipe open, and a command that prints
# without end would fill the host's memory. Only the tails are printed. TOOLS, if not empty, goes before PATH.
workdir=$1 seconds=$2 kill_after=$3 tail_bytes=$4 tools=$5
[ -z "$tools" ] || PATH=$tools:$PATH

cd -- "$workdir" || exit 125
# By its path: busybox's `timeout` would take its own shell.
shell=$(command -v sh)
run='command=$OPENCODE_COMMAND; unset OPENCODE_COMMAND; eval "$command"'

# `timeout` ends the command's whole process group. Where it is missing or too old, the host's deadline does it.
if timeout -k "$kill_after" "$seconds" true 2>/dev/null; then
    set -- timeout -k "$kill_after" "$seconds" "$shell" -c "$run"
else
    set -- "$shell" -c "$run"
fi

# A full disk costs the output, not the verdict.
if logs=$(mktemp -d 2>/dev/null); then
    "$@" >"$logs/out" 2>"$logs/err" </dev/null
    code=$?
    tail -c "$tail_bytes" "$logs/out"
    tail -c "$tail_bytes" "$logs/err" >&2
    rm -rf "$logs"
else
    "$@" >/dev/null 2>&1 </dev/null
    code=$?
fi
exit "$code"
