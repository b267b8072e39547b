#!/bin/bash
if [ "$(cat report/ada 2>/dev/null)" = $'login\nread\nlogout' ] && [ "$(cat report/bob 2>/dev/null)" = $'login\nwrite' ] &&
    [ "$(ls report | wc -l)" -eq 2 ]; then
    echo 1 >/logs/verifier/reward.txt
else
    echo 0 >/logs/verifier/reward.txt
fi
