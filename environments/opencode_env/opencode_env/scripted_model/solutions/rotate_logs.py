"""Sample `rotate-logs`: the failing path splits file names at spaces."""

from opencode_env.scripted_model.solutions.calls import Solution, bash, turn, write

_SCRIPT = """#!/bin/sh
# Deletes all .log files of a directory but the three newest.
set -eu
cd "$1"
kept=0
ls -t | while IFS= read -r name; do
    case $name in *.log) ;; *) continue ;; esac
    [ -f "$name" ] || continue
    kept=$((kept + 1))
    if [ "$kept" -gt 3 ]; then rm -- "$name"; fi
done
"""
_NAIVE = """#!/bin/sh
# Deletes all .log files of a directory but the three newest.
for name in $(ls -t "$1"/*.log | tail -n +4); do
    rm "$name"
done
"""
_TRY = (
    'd=$(mktemp -d) && for n in 1 2 3 4 5; do touch -d "2026-01-0$n" "$d/$n.log"; done && '
    'sh /app/rotate.sh "$d" && ls "$d" && rm -r "$d"'
)
_RUN = turn("I try it in a scratch directory.", bash(_TRY))
_END = turn("/app/rotate.sh keeps the three newest log files.")

SOLUTION = Solution(
    solve=(turn("I write the script.", write("/app/rotate.sh", _SCRIPT)), _RUN, _END),
    fail=(turn("I write the script.", write("/app/rotate.sh", _NAIVE)), _RUN, _END),
)
