# Says what the verify commands left, and removes the directory that they worked in.
#
# usage: sh -c "$(cat end_scoring.sh)" end-scoring DIRECTORY REWARD_FILE
#
# Prints `reward-file` if there is anything at REWARD_FILE, and `failed …` if run-agent-code could run nothing.
directory=$1 reward_file=$2
if [ -e "$reward_file" ] || [ -L "$reward_file" ]; then echo reward-file; fi
[ -n "$directory" ] || exit 0
if [ -f "$directory/tmp/.failed" ]; then
    printf 'failed %s\n' "$(head -c 500 "$directory/tmp/.failed" | tr '\n' ' ')"
fi
chmod -R u+rwx -- "$directory" 2>/dev/null
rm -rf -- "$directory"
