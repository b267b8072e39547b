# The image of a rollout's sandbox: any base image, with OpenCode, ripgrep and the math scorer where the harness and the
# rubric look for them, so that no sandbox downloads or is sent anything. (The server of `run_rollout` has its own in
# deploy/openenv.)
#
# Build, with podman or docker, whichever is there:
#   make image BASE=python:3.11-slim TAG=registry.example/me/opencode-sandbox:1
# Use, once it is pushed to a registry that the sandboxes can reach:
#   --env.agent.runtime.image registry.example/me/opencode-sandbox:1 --env.agent.harness.install image
ARG BASE=python:3.11-slim
FROM ${BASE}
COPY opencode /opencode
COPY scorer /opt/opencode-scorer
# What arrived is what was checked on the host, and it runs on this base (on one with musl: make image LIBC=musl).
RUN sha256sum -c /opencode/SHA256SUMS && export HOME=$(mktemp -d) \
    && for program in /opencode/*/opencode /opencode/*/rg; do "$program" --version || exit 1; done && rm -rf "$HOME"
# A sandbox that only sleeps need not be asked to end.
STOPSIGNAL SIGKILL
