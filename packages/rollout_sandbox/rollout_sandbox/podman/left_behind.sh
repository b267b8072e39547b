# Waits until its stdin closes, which is the end of an evaluation, and removes what that left of its containers.
# $1: the path of their directories up to the part of the name that a container shares with its own.
read -r _
seconds=0
while [ "$seconds" -le 600 ]; do
    left=
    for directory in "$1"*; do
        [ -d "$directory" ] || continue
        # Before it has a process, a container may be about to be made: `podman run` outlives the evaluation, too.
        if [ -s "$directory/pid" ] || [ "$seconds" -eq 600 ]; then
            podman rm --force --volumes --ignore "vf-${directory##*-}" && rm -rf "$directory"
        fi
        [ -d "$directory" ] && left=1
    done
    [ "$left" ] || exit 0
    sleep 1
    seconds=$((seconds + 1))
done
