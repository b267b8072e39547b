# Ends every process of USER, except verifiers' tool servers, which are told by their environment.
#
# usage: sh -c "$(cat kill_user.sh)" kill-user USER
#
# Prints the user's id. Exit code 0: nothing is left. 1: some survived every round. 3: no such user. A process of the
# agent that pretends to be a tool server lives on, still as USER: it can reach nothing of root's.
uid=$(id -u -- "$1" 2>/dev/null) || exit 3
printf '%s\n' "$uid"
[ "$uid" != 0 ] || exit 0
round=0
while [ "$round" -lt 20 ]; do
    found=
    for directory in /proc/[0-9]*; do
        while read -r key real effective rest; do
            [ "$key" = Uid: ] || continue
            if [ "$real" = "$uid" ] || [ "$effective" = "$uid" ]; then
                # A zombie is gone, unless it is the first thread of a process whose other threads go on.
                grep -q '^State:[[:space:]]*Z' "$directory/status" 2>/dev/null &&
                    grep -q '^Threads:[[:space:]]*[01]$' "$directory/status" 2>/dev/null && break
                # Killed, and not gone before a call of the kernel's is done, such as `sync`: it will not run again.
                grep -q '^SigPnd:.*[13579bdf][0-9a-f][0-9a-f]$' "$directory/status" 2>/dev/null && break
                tr '\0' '\n' <"$directory/environ" 2>/dev/null | grep -q '^VF_STATE_SECRET=' && break
                kill -KILL "${directory#/proc/}" 2>/dev/null && found=1
            fi
            break
        done 2>/dev/null <"$directory/status"
    done
    [ -n "$found" ] || exit 0
    round=$((round + 1))
    [ "$round" -lt 4 ] || sleep 0.2
done
exit 1
