#!/bin/sh
# Stands for a release of Node.js that the npm registry does not have: says the release that set-up asks for by name,
# and is otherwise the one beside this program.
[ "$*" != --version ] || [ -z "${VF_NODE_VERSION:-}" ] || { echo "v$VF_NODE_VERSION"; exit; }
set -- "$(dirname "$(readlink -f "$0")")"/node_modules/node-linux-*/bin/node "$@"
exec "$@"
