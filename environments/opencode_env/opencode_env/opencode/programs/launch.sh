# Runs one segment of OpenCode, prints the end of its log as tails.sh does (which see), and returns OpenCode's exit code. Its
# standard input is the prompt file, its output goes to files:
# launch.sh STATE WORKDIR PROGRAM_DIR EVENTS_BYTES SEPARATOR [opencode run arguments…]
state=$1 workdir=$2 programs=$3 events_bytes=$4 separator=$5
shift 5
cd "$workdir" || { echo "opencode-env: cannot enter the working directory $workdir" >&2; exit 125; }
export OPENCODE_ENV_STATE="$state" HOME="$state/home" TMPDIR="$state/tmp" PATH="$state/bin:$programs:$PATH" PWD="$workdir"
export XDG_CONFIG_HOME="$state/config" XDG_DATA_HOME="$state/data" XDG_CACHE_HOME="$state/cache" XDG_STATE_HOME="$state/state"
export OPENCODE_MODELS_PATH="$state/models.json" OPENCODE_TEST_MANAGED_CONFIG_DIR="$state/managed"
export OPENCODE_DISABLE_PROJECT_CONFIG=1 OPENCODE_DISABLE_FFF=1 OPENCODE_DISABLE_MODELS_FETCH=1
export OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_SHARE=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1
export OPENCODE_DISABLE_DEFAULT_PLUGINS=1 OPENCODE_DISABLE_CLAUDE_CODE=1 OPENCODE_DISABLE_TERMINAL_TITLE=1
export OPENCODE_DISABLE_EMBEDDED_WEB_UI=1 OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER=1
unset OPENCODE_CONFIG OPENCODE_CONFIG_CONTENT OPENCODE_CONFIG_DIR OPENCODE_PERMISSION
opencode run --format json --title rollout "$@" <"$state/prompt.txt" >>"$state/events.jsonl" 2>>"$state/stderr.log"
code=$?
end_of() { [ -L "$2" ] || [ ! -f "$2" ] || tail -c "$1" "$2"; }
end_of "$events_bytes" "$state/events.jsonl"
printf '%s' "$separator"
end_of 16384 "$state/stderr.log"
exit $code
