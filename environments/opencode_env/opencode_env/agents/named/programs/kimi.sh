#!/bin/sh
# Kimi Code's own installer brings a single file; this is the same release from npm, under the harnesses' Node.js.
exec /var/tmp/vf-node/bin/node "$(dirname "$(readlink -f "$0")")/node_modules/.bin/kimi" "$@"
