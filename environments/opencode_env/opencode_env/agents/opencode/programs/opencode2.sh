#!/bin/sh
# OpenCode 2 where verifiers' own harness looks for it: the build for this processor, without the package that picks it.
set -- "$(dirname "$(readlink -f "$0")")"/../@opencode/cli-linux-*/bin/opencode "$@"
exec "$@"
