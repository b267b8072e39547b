#!/bin/bash
# Puts beside each openenv.yaml what its image installs: the wheels of this checkout, and requirements.txt with the
# versions and hashes that uv.lock has. After it, `openenv build deploy/openenv/NAME` needs nothing of the checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.cache/uv/bin:$PATH"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for package in rollout-sandbox mathverdict opencode-env opencode-openenv opencode-rlm opencode-rubrics; do
    uv build --quiet --wheel --package "$package" --out-dir "$made/wheels"
done
rm -f "$made/wheels/.gitignore"
uv export --quiet --frozen --no-dev --package opencode-openenv --package opencode-rlm \
    --no-emit-workspace --no-annotate --no-header --output-file "$made/requirements.txt" >/dev/null
for manifest in deploy/openenv/*/openenv.yaml; do
    directory=$(dirname "$manifest")
    rm -rf "$directory/wheels" "$directory/requirements.txt"
    cp -r "$made/wheels" "$made/requirements.txt" "$directory"
    echo "$directory: ready for openenv build"
done
