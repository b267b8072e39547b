"""Whether bubblewrap works on this machine, and with which namespaces.

Invariant: nothing of a rollout starts on a machine where the sandbox could not be made as designed.
"""

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from verifiers.v1.errors import SandboxError

_PROBE_TIMEOUT_S = 30
_ALTERNATIVES = (
    "install it (apt-get install bubblewrap), or choose a container (--env.agent.runtime.type docker|podman|prime), "
    "or run without a sandbox on your own risk (--env.sandbox.confine false)"
)
# A non-root user inside: without capabilities a root would fail in chown (tar, cp -a), and some agents refuse root.
_ISOLATION = (
    *("--unshare-user", "--uid", "1000", "--gid", "1000"),
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
    *("--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"),
)
_NO_NESTED_USERS = "--disable-userns"


@dataclass(frozen=True)
class Bubblewrap:
    """A bubblewrap that works here: its path and the options that isolate."""

    program: str
    isolation: tuple[str, ...]


def system_arguments() -> list[str]:
    """Return the options that show the host's programs and libraries, read-only, and fresh /proc and /dev."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    if os.path.isdir("/usr/src"):  # where container images keep projects
        arguments += ["--tmpfs", "/usr/src", "--remount-ro", "/usr/src"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return [*arguments, "--proc", "/proc", "--dev", "/dev"]


def _probe(program: str, isolation: tuple[str, ...]) -> str | None:
    """Run `true` in a sandbox; return what went wrong."""
    try:
        done = subprocess.run(
            [program, *isolation, "--unshare-net", *system_arguments(), "true"],
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return done.stderr.decode(errors="replace").strip()[-300:] or f"exit code {done.returncode}"


@functools.cache
def require_bubblewrap() -> Bubblewrap:
    """Return the bubblewrap of this machine, tried once per process (about 10 ms).

    Raises:
        SandboxError: it is missing or not allowed to make namespaces; the message says what to do.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError(f"the local sandbox needs bubblewrap, but bwrap is not on PATH: {_ALTERNATIVES}")
    # bubblewrap before 0.8 and some containers cannot forbid nested user namespaces; the sandbox holds without it.
    for isolation in ((*_ISOLATION, _NO_NESTED_USERS), _ISOLATION):
        problem = _probe(program, isolation)
        if problem is None:
            return Bubblewrap(program, isolation)
    raise SandboxError(
        f"bubblewrap cannot make a sandbox here ({problem}): allow this user to make user namespaces, {_ALTERNATIVES}"
    )
