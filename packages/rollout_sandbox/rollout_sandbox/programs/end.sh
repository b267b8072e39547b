# Ends every process that was not there at the mark: end.sh MARK, MARK being the lines of mark.sh. What a marked tool
# server started since, this script's own line of parents and process 1 live on. Stops all first, so that nothing can
# fork away, then kills; exits 1 and names them when some survive.
mark=$1

scan() { # prints PID STARTTIME PPID STATE THREADS of every process
    for directory in /proc/[0-9]*; do
        # Without a program for each, in whose time a chain of short-lived processes would pass by. A name may hold
        # line breaks.
        line=
        { while IFS= read -r part; do line="$line $part"; done <"$directory/stat"; } 2>/dev/null
        [ -n "$line" ] || continue
        set -- ${line##*) }
        printf '%s %s %s %s %s\n' "${directory#/proc/}" "${20}" "$2" "$1" "${18}"
    done
}

victims() {
    scan | awk -v mark="$mark" -v self="$$" '
        BEGIN {
            count = split(mark, lines, "\n")
            for (i = 1; i <= count; i++) {
                split(lines[i], f, " ")
                known[f[1] " " f[2]] = 1
                if (f[3] == "tool") tool[f[1] " " f[2]] = 1
            }
        }
        # A process whose first thread has ended looks like a zombie while its other threads go on.
        { parent[$1] = $3; start[$1] = $2; gone[$1] = $4 == "Z" && $5 <= 1 }
        END {
            for (p = self; p in parent && p != 1; p = parent[p]) spared[p] = 1
            for (pid in parent) {
                if (pid == 1 || pid in spared || (pid " " start[pid]) in known || gone[pid]) continue
                keep = 0
                for (p = parent[pid]; p in parent && p != 1 && !keep; p = parent[p]) {
                    if (p == self) keep = 1
                    if ((p " " start[p]) in tool) keep = 1
                }
                if (!keep) print pid
            }
        }'
}

round=0 none=0
while [ "$round" -lt 20 ]; do
    round=$((round + 1))
    left=$(victims)
    if [ -z "$left" ]; then
        none=$((none + 1))
        [ "$none" -lt 3 ] || exit 0
        continue
    fi
    none=0
    kill -STOP $left 2>/dev/null
    more=$(victims)
    kill -KILL $more 2>/dev/null
    [ "$round" -lt 6 ] || sleep 0.2
done
echo "opencode-env: still running:" $left >&2
exit 1
