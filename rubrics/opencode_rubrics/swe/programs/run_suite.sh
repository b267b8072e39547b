# Runs the suite and keeps the beginning of what it prints.
#
# usage: sh run_suite.sh DIRECTORY MAX_BYTES
#
# DIRECTORY holds `suite`, and gets `log`. The exit code is the suite's own. What it left running does not hold us up.
directory=$1 shell=$(command -v bash || command -v sh)
mkfifo "$directory/pipe" || exit 90
head -c "$2" <"$directory/pipe" >"$directory/log" &
reader=$!
"$shell" "$directory/suite" >"$directory/pipe" 2>&1 </dev/null
code=$?
waited=0
while kill -0 $reader 2>/dev/null && [ $waited -lt 20 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
kill $reader 2>/dev/null
exit $code
