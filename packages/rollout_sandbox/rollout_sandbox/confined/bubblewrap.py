"""Whether bubblewrap works on this machine, and with which namespaces.

Invariant: nothing of a rollout starts on a machine where the sandbox could not be made as designed.
"""

import functools
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verifiers.v1.errors import SandboxError

from rollout_sandbox.confined.interpreter import base_python, interpreter_roots
from rollout_sandbox.confined.users import INSIDE_ID, SandboxUser, UserPool

logger = logging.getLogger("verifiers.v1.rollout_sandbox.confined")

_PROBE_TIMEOUT_S = 30
_ALTERNATIVES = (
    "install it (apt-get install bubblewrap), or choose a container (--env.agent.runtime.type docker|podman|prime), "
    "or run without a sandbox on your own risk (--env.sandbox.confine false)"
)
# A non-root user inside: without capabilities a root would fail in chown (tar, cp -a), and some agents refuse root.
_ISOLATION = (
    *("--uid", str(INSIDE_ID), "--gid", str(INSIDE_ID)),
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
    *("--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"),
)
_NO_NESTED_USERS = "--disable-userns"
_LEAST_VERSION = (0, 5)
"""The first with `--clearenv`, the youngest of the options that the sandbox needs."""


@dataclass(frozen=True)
class Bubblewrap:
    """A bubblewrap that works here: its path and the options that make a user namespace."""

    program: str
    new_users: tuple[str, ...]

    def isolation(self, user: SandboxUser | None) -> list[str]:
        """The options that isolate, with the user namespace of `user`, or a new one."""
        users = self.new_users if user is None else ("--userns", str(user.namespace))
        return [*users, *_ISOLATION]


def system_arguments() -> list[str]:
    """Return the options that show the host's programs and libraries, read-only, and a fresh /proc and /dev."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    if os.path.isdir("/usr/src"):  # where container images keep projects
        arguments += ["--tmpfs", "/usr/src", "--remount-ro", "/usr/src"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    queues = ["--mqueue", "/dev/mqueue"] if os.path.isdir("/proc/sys/fs/mqueue") else []  # some kernels have none
    return [*arguments, "--proc", "/proc", "--dev", "/dev", *queues]


def _probe(bubblewrap: Bubblewrap, user: SandboxUser | None, command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            [bubblewrap.program, *bubblewrap.isolation(user), "--unshare-net", *system_arguments(), *command],
            env={"PATH": "/usr/bin:/bin"},
            pass_fds=[] if user is None else [user.namespace],
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
    """Return the bubblewrap of this machine, tried once per process (about 10 ms); the message of the `SandboxError`
    where it is missing, or not allowed to make namespaces, says what to do."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError(f"the local sandbox needs bubblewrap, but bwrap is not on PATH: {_ALTERNATIVES}")
    # bubblewrap before 0.8 and some containers cannot forbid nested user namespaces; the sandbox holds without it.
    for new_users in (("--unshare-user", _NO_NESTED_USERS), ("--unshare-user",)):
        bubblewrap = Bubblewrap(program, new_users)
        if (problem := _probe(bubblewrap, None, ["true"])) is None:
            return bubblewrap
    if (version := _version(program)) and version < _LEAST_VERSION:
        raise SandboxError(
            f"{program} is bubblewrap {_dotted(version)}, which is too old: the local sandbox needs "
            f"{_dotted(_LEAST_VERSION)} or later; {_ALTERNATIVES}"
        )
    raise SandboxError(
        f"bubblewrap cannot make a sandbox here ({problem}): allow this user to make user namespaces, {_ALTERNATIVES}"
    )


def _version(program: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(rb"\d+(?:\.\d+)+", said.stdout)
    return tuple(map(int, found[0].split(b"."))) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


@functools.cache
def user_pool(first: int) -> UserPool | None:
    """Return this process's pool of the host user ids from `first`, tried once; None, said once, where it has none."""
    if os.geteuid() != 0:
        return None
    bubblewrap = require_bubblewrap()
    pool = UserPool(first)
    try:
        user = pool.take()
    except OSError as error:
        problem: str | None = str(error)
    else:
        roots = [word for root in interpreter_roots() for word in ("--ro-bind", root, root)]
        problem = _probe(bubblewrap, user, [*roots, base_python(), "-E", "-s", "-S", "-c", "pass"])
        pool.give_back(user)
    if problem is None:
        return pool
    logger.warning(
        "sandboxes share the user id of this evaluation, and with it what the kernel counts by user (%s): name ids "
        "that it may use with --env.sandbox.first-user, or choose that with --env.sandbox.own-user false",
        problem,
    )
    return None
