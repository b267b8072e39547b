#!/bin/bash
# Puts beside each openenv.yaml what its image installs: the wheels of this checkout, and requirements.txt with the
# versions and hashes that uv.lock has. After it, `openenv build deploy/openenv/NAME` needs nothing of the checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.cache/uv/bin:$PATH"
packages=(agent-sandbox mathverdict opencode-env opencode-openenv opencode-rlm opencode-rubrics)
for manifest in deploy/openenv/*/openenv.yaml; do
    directory=$(dirname "$manifest")
    rm -rf "$directory/wheels" "$directory/requirements.txt"
    for package in "${packages[@]}"; do
        uv build --quiet --wheel --package "$package" --out-dir "$directory/wheels"
    done
    rm -f "$directory/wheels/.gitignore"
    uv export --quiet --frozen --no-dev --package opencode-openenv --package opencode-rlm \
        --no-emit-workspace --no-annotate --output-file "$directory/requirements.txt" >/dev/null
    echo "$directory: ready for openenv build"
done
