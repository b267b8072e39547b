# Makes the documented place of the reward file lead to the new directory that only verify commands write.
#
# usage: sh -c "$(cat reward_place.sh)" reward-place HOME VERIFIER_DIRECTORY
#
# Whatever the agent left at HOME/logs/verifier is removed; no link of its is followed.
home=$1 verifier=$2
for directory in "$home" "$home/logs"; do
    if [ -L "$directory" ] || { [ -e "$directory" ] && [ ! -d "$directory" ]; }; then
        rm -f -- "$directory" || exit 1
    fi
    [ -d "$directory" ] || mkdir -- "$directory" || exit 1
    # An agent can have taken the right to write from a directory of its own user.
    [ -w "$directory" ] || chmod u+rwx -- "$directory" || exit 1
done
place=$home/logs/verifier
if [ -d "$place" ] && [ ! -L "$place" ]; then
    chmod -R u+rwx -- "$place" 2>/dev/null
fi
rm -rf -- "$place" || exit 1
ln -s -- "$verifier" "$place"
