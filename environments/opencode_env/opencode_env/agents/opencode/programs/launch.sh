# Runs one segment of OpenCode, prints the end of its log as tails.sh does (which see), and returns OpenCode's exit code. Its
# standard input is the prompt file, its output goes to files:
# launch.sh STATE WORKDIR PROGRAM_DIR EVENTS_BYTES SEPARATOR AGAIN [opencode run arguments…]
# AGAIN is not empty when the start before made no model call and was ended: what that left is undone.
state=$1 workdir=$2 programs=$3 events_bytes=$4 separator=$5 again=$6
shift 6
[ -d "$workdir" ] && [ -x "$workdir" ] || {
    echo "opencode-env: cannot enter the working directory $workdir" >&2
    exit 125
}
# Its engine obeys files in the directory and the home that it starts in, and its git the configuration of a repository.
# So it starts in a directory of ours; the plugin gives the agent's commands a home of their own, and git's networks back.
cd "$state" || exit 125
export GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1
export OPENCODE_ENV_STATE="$state" HOME="$state" TMPDIR="$state/tmp" PATH="$state/bin:$programs:$PATH" PWD="$workdir"
export XDG_CONFIG_HOME="$state/config" XDG_DATA_HOME="$state/data" XDG_CACHE_HOME="$state/cache" XDG_STATE_HOME="$state/state"
export OPENCODE_MODELS_PATH="$state/models.json" OPENCODE_TEST_MANAGED_CONFIG_DIR="$state/managed"
export OPENCODE_DISABLE_PROJECT_CONFIG=1 OPENCODE_DISABLE_FFF=1 OPENCODE_DISABLE_MODELS_FETCH=1
export OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_SHARE=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1
export OPENCODE_DISABLE_DEFAULT_PLUGINS=1 OPENCODE_DISABLE_CLAUDE_CODE=1 OPENCODE_DISABLE_TERMINAL_TITLE=1
export OPENCODE_DISABLE_EMBEDDED_WEB_UI=1 OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER=1
# Its engine would run compiled modules out of a cache in which the agent writes.
export BUN_RUNTIME_TRANSPILER_CACHE_PATH=0
# Bun's compiler and garbage collector without threads of their own: a third less CPU where many agents share a machine.
export BUN_JSC_useDFGJIT=0 BUN_JSC_numberOfGCMarkers=1 BUN_JSC_useConcurrentGC=0 BUN_JSC_largeHeapSize=400000000
unset OPENCODE_CONFIG OPENCODE_CONFIG_CONTENT OPENCODE_CONFIG_DIR OPENCODE_PERMISSION
before="$state/before" # the session store and the logs, as they were
if [ -n "$again" ]; then
    for name in data events.jsonl stderr.log; do
        [ ! -e "$before/$name" ] || { rm -rf "${state:?}/$name" && mv "$before/$name" "$state/$name"; }
    done
else
    rm -rf "$before" && mkdir "$before" && cp -a "$state/data" "$state/events.jsonl" "$state/stderr.log" "$before"
fi 2>/dev/null
opencode run --format json --title rollout --dir "$workdir" "$@" <"$state/prompt.txt" >>"$state/events.jsonl" 2>>"$state/stderr.log"
code=$?
end_of() { [ -L "$2" ] || [ ! -f "$2" ] || tail -c "$1" "$2"; }
end_of "$events_bytes" "$state/events.jsonl"
printf '%s' "$separator"
end_of 16384 "$state/stderr.log"
exit $code
