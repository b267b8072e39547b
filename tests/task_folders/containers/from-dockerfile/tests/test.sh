#!/bin/bash
[ "$PWD" = /srv/site ] && [ -f built.txt ] && [ "$(cat page.txt)" = "new page" ]
echo $((1 - $?)) >/logs/verifier/reward.txt
