# Kills every process whose environment holds MARK, whatever process group or session it moved to.
#
# usage: sh -c "$(cat kill_marked.sh)" kill-marked MARK
#
# Exit code 0: none is left. 1: some survived every round.
round=0
while [ "$round" -lt 20 ]; do
    found=
    for environ in /proc/[0-9]*/environ; do
        if grep -q -F -- "$1" "$environ" 2>/dev/null; then
            pid=${environ#/proc/}
            kill -KILL "${pid%/environ}" 2>/dev/null && found=1
        fi
    done
    [ -z "$found" ] && exit 0
    round=$((round + 1))
    sleep 0.1 2>/dev/null || sleep 1
done
exit 1
