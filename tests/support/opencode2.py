"""An `npm` for the OpenCode 2 that verifiers' own harness installs: the registry's where it has one, else a preview.

The preview of 28 August 2026 is the newest OpenCode 2 that every registry has. It stands behind the name of the release
with one change: the harness's configuration names a module by its name of 2.x, the preview has it under its old name.
"""

import platform
import sys
from pathlib import Path

from opencode_env.agents.named.npm import npm_command

PREVIEW = "@opencode-ai/cli-linux-x64-baseline@0.0.0-next-16350"
SUPPORTED = platform.machine() == "x86_64"
"""Whether the preview runs on this processor."""

_PROGRAM = """#!{python} -ISs
import os, pathlib, subprocess, sys
real, preview = {real!r}, {preview!r}
*options, spec = sys.argv[1:]
name = spec.rpartition("@")[0]
if not name.startswith("@opencode/cli") or subprocess.run([*real, "view", spec, "version"], capture_output=True).stdout:
    os.execvp(real[0], [*real, *options, spec])
subprocess.run([*real, *options, preview], check=True)
modules = pathlib.Path(options[options.index("--prefix") + 1], "node_modules")
build = modules / "@opencode" / "cli-linux-x64" / "bin" / "opencode"
build.parent.mkdir(parents=True)
build.write_text({wrapper!r})
build.chmod(0o755)
if name == "@opencode/cli":
    (modules / ".bin").mkdir(exist_ok=True)
    (modules / ".bin" / "opencode").symlink_to("../@opencode/cli-linux-x64/bin/opencode")
"""
_WRAPPER = """#!/bin/sh
config=$(printf %s "${{OPENCODE_CONFIG_CONTENT:-}}" | sed 's#@opencode/ai/providers#@opencode-ai/ai/providers#g')
[ -z "$config" ] || export OPENCODE_CONFIG_CONTENT="$config"
set -- "$(dirname "$(readlink -f "$0")")/../../../{package}/bin/opencode2" "$@"
exec "$@"
"""


def npm_with_opencode2(directory: Path) -> Path:
    """Write the program `npm` into a new directory, which goes first on PATH; returns the directory."""
    directory.mkdir(parents=True)
    wrapper = _WRAPPER.format(package=PREVIEW.rpartition("@")[0])
    program = directory / "npm"
    program.write_text(_PROGRAM.format(python=sys.executable, real=npm_command(), preview=PREVIEW, wrapper=wrapper))
    program.chmod(0o755)
    return directory
