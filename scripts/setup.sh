#!/bin/sh
# Installs what is missing: uv, the workspace with its OpenEnv servers, bubblewrap, the OpenCode binary; with --docs what
# builds the site; with --tests all that, and curl, chromium, podman and debootstrap (root only; without them the tests in
# a browser and in containers are skipped); with --learn also torch, unless one is there. Says in one line what it cannot
# install.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.cache/uv/bin:$PATH"

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

apt_install() { # apt_install PACKAGE…: 0 when installed, 1 when this user or machine cannot
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    say "installing $* with apt-get"
    if [ -z "${apt_updated:-}" ]; then apt-get update -qq >/dev/null && apt_updated=1 || return 1; fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >.cache/apt.log 2>&1
}

mkdir -p .cache
if ! command -v uv >/dev/null 2>&1; then
    python=$(command -v python3) || fail "python3 is missing: install Python 3.11 or newer"
    say "installing uv with pip"
    "$python" -m pip install -q --disable-pip-version-check --target .cache/uv uv >.cache/pip.log 2>&1 ||
        fail "uv could not be installed (see .cache/pip.log): install pip, or uv by hand"
fi
if ! command -v bwrap >/dev/null 2>&1; then
    apt_install bubblewrap || fail "bubblewrap is missing: run 'apt-get install bubblewrap' as root, then try again"
fi

groups="--group openenv"
if ! command -v npm >/dev/null 2>&1; then groups="$groups --group npm"; fi
case "${1:-}" in
    --tests) groups="$groups --group docs" ;;
    --docs) groups="$groups --group docs --inexact" ;;
    --learn)
        groups="$groups --inexact"
        .venv/bin/python -c 'import torch' 2>/dev/null || groups="$groups --extra learn" ;;
    *) groups="$groups --inexact" ;; # what the tests need stays
esac
say "installing the workspace"
# shellcheck disable=SC2086
uv sync -q --locked $groups || fail "the workspace could not be installed: see the message above"

uv run --no-sync python -m opencode_env.fetch || fail "the OpenCode binary could not be fetched: see above"

if [ "${1:-}" = --tests ]; then
    # verifiers' harnesses on Node.js ask for it.
    command -v curl >/dev/null 2>&1 || apt_install curl ca-certificates ||
        fail "curl is missing: run 'apt-get install curl' as root, then try again"
    command -v chromium >/dev/null 2>&1 || apt_install chromium || {
        [ -z "${CI:-}" ] || fail "the tests of opencode-report need chromium: install it as root"
        say "without chromium the tests of opencode-report in a browser are skipped: install it as root to run all"
    }
    missing=
    command -v podman >/dev/null 2>&1 && command -v runc >/dev/null 2>&1 || missing="podman runc netavark aardvark-dns iptables"
    command -v debootstrap >/dev/null 2>&1 || missing="$missing debootstrap"
    # Linked statically: what scoring uses in a container whose agent can have replaced its own shell.
    command -v bash-static >/dev/null 2>&1 && command -v busybox >/dev/null 2>&1 || missing="$missing bash-static busybox-static"
    # shellcheck disable=SC2086
    if [ -n "$missing" ] && ! apt_install $missing; then
        [ -z "${CI:-}" ] || fail "the container tests need podman, runc and debootstrap: install them as root"
        say "without podman, runc and debootstrap the container tests are skipped: install them as root to run all"
    fi
fi
