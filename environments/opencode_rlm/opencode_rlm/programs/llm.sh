#!/bin/sh
# The command `llm`: runs rlm.js with the OpenCode binary, which is a JavaScript runtime. See `llm --help`.
state=${0%/*}/..
programs=
read -r programs <"$state/programs"
BUN_BE_BUN=1 exec "$programs/opencode" "$state/rlm.js" "$@"
