#!/bin/sh
# In the place of a stub that the package's install script would replace by this processor's program.
set -- "$(dirname "$(readlink -f "$0")")"/../../claude-code-linux-*/claude "$@"
exec "$@"
