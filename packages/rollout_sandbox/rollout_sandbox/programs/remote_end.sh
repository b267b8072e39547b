# Kills every process with MARK in its environment, and what those started with it: remote_end.sh NAME=VALUE
# Sends them a signal instead: remote_end.sh NAME=VALUE SIGNAL
mark=$1 signal=${2-} round=0
while [ "$round" -lt 20 ]; do
    round=$((round + 1)) found=
    for directory in /proc/[0-9]*; do
        if tr '\0' '\n' <"$directory/environ" 2>/dev/null | grep -qxF "$mark"; then found="$found ${directory#/proc/}"; fi
    done
    [ -n "$found" ] || exit 0
    [ -z "$signal" ] || { kill -s "$signal" $found 2>/dev/null; exit 0; }
    kill -STOP $found 2>/dev/null
    kill -KILL $found 2>/dev/null
    [ "$round" -lt 4 ] || sleep 0.2
done
echo "still running:$found" >&2
exit 1
