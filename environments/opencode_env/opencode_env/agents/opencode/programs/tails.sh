# Prints the end of OpenCode's events and of its standard error, with SEPARATOR between them:
# tails.sh STATE EVENTS_BYTES SEPARATOR
# The agent can have put something else in their place, on which a reader waits or reads for ever.
end_of() { [ -L "$2" ] || [ ! -f "$2" ] || tail -c "$1" "$2"; }
end_of "$2" "$1/events.jsonl"
printf '%s' "$3"
end_of 16384 "$1/stderr.log"
