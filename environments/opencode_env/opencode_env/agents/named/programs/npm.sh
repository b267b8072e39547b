#!/bin/sh
# Stands for npm in the confined sandbox: `npm install --prefix DIRECTORY …` finds what it asks for beside this program.
set -eu
prefix=
while [ $# -gt 0 ]; do
    [ "$1" != --prefix ] || prefix=$2
    shift
done
[ -n "$prefix" ] || { echo "npm: only what the harness needs is installed here; there is no network" >&2; exit 1; }
mkdir -p "$prefix"
ln -sfn "$(dirname "$(readlink -f "$0")")/node_modules" "$prefix/node_modules"
