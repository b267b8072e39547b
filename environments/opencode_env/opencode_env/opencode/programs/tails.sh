# Prints the end of OpenCode's events and of its standard error, with SEPARATOR between them:
# tails.sh STATE EVENTS_BYTES SEPARATOR
tail -c "$2" "$1/events.jsonl"
printf '%s' "$3"
tail -c 16384 "$1/stderr.log"
