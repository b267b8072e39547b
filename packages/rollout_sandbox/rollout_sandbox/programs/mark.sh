# Prints `namespace=…` and then `PID STARTTIME KIND` of every process, KIND `tool` for verifiers' tool servers, else `-`.
printf 'namespace=%s\n' "$(readlink /proc/self/ns/pid)"
for directory in /proc/[0-9]*; do
    pid=${directory#/proc/}
    line=$(cat "$directory/stat" 2>/dev/null) || continue
    set -- ${line##*) }
    kind=-
    if tr '\0' '\n' <"$directory/environ" 2>/dev/null | grep -q '^VF_STATE_SECRET='; then kind=tool; fi
    printf '%s %s %s\n' "$pid" "${20}" "$kind"
done
