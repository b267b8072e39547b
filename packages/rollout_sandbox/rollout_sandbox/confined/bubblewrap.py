"""Whether bubblewrap works on this machine, and what a sandbox sees: the bubblewrap arguments of one rollout.

Only the private parts of the sandbox's own directory are writable. Everything else is read-only, /proc included: a host
root keeps its uid towards the kernel, and /proc/sys asks for the uid alone.
"""

import functools
import logging
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from verifiers.v1.errors import SandboxError, TaskError

from rollout_sandbox.confined.config import Bind, LocalSandboxConfig
from rollout_sandbox.confined.directory import ROOT, SandboxDirectory
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


HERE = Path(__file__).parent
SUPERVISOR = "/.vf"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev", "/sys", "/etc", SUPERVISOR)
_OWN_ETC = ("group", "hostname", "nsswitch.conf")
_HOST_ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts"),
    *("gai.conf", "host.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime"),
    *("magic", "magic.mime", "manpath.config", "mime.types", "os-release", "perl", "pki/ca-trust", "pki/tls/certs"),
    *("protocols", "python3", "python3.11", "python3.12", "python3.13", "rpc", "services", "ssl/certs"),
    *("ssl/openssl.cnf", "terminfo", "timezone", "vim"),
)
# Readable by the host's root through its uid alone.
_ROOT_ONLY_PROC = (
    *("kcore", "keys", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "sched_debug", "slabinfo", "timer_list"),
    *("vmallocinfo",),
)


def require_private_workdir(workdir: str) -> None:
    """Refuse, by a `TaskError`, a work directory that is the root, or lies in or around a directory of the system."""
    path = PurePosixPath(workdir)
    for system in map(PurePosixPath, _SYSTEM):
        if path.is_relative_to(system) or system.is_relative_to(path):
            raise TaskError(
                f"work directory {workdir!r} is part of the system, which the local sandbox shows read-only: name "
                "another as the task's workdir or --env.agent.harness.agent-workdir, or choose a container"
            )


def _etc_arguments(network: str, directory: SandboxDirectory) -> list[str]:
    own, of_host = {name: HERE / "etc" / name for name in _OWN_ETC} | {"passwd": directory.passwd}, [*_HOST_ETC]
    if network == "host":
        of_host += ["hosts", "resolv.conf"]
    else:
        own |= {"hosts": directory.hosts, "resolv.conf": HERE / "etc" / "resolv.conf"}
    shown = own | {name: Path("/etc", name) for name in of_host if os.path.exists(f"/etc/{name}")}
    return [word for name, source in shown.items() for word in ("--ro-bind", str(source), f"/etc/{name}")]


def _hidden_packages(options: LocalSandboxConfig, binds: Sequence[Bind]) -> list[str]:
    """Return the visible directories of installed packages: tasksets among them carry their answers. What another
    sandbox's agent has filled shows none, and nothing is mounted there, where a link could lead out of it."""
    if options.python_env:
        return []
    visible = ["/usr", *(bind.target for bind in binds if not bind.source.is_relative_to(ROOT))]
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return sorted(
        path for path in packages if os.path.isdir(path) and any(Path(path).is_relative_to(root) for root in visible)
    )


def _anchors(targets: Iterable[str], areas: Iterable[str]) -> list[str]:
    """Return the directories that lead to read-only targets inside writable areas, one step below each area.

    An agent could rename them and put something of its own in the target's place; a mount point cannot be renamed.
    """
    found = set()
    for target in map(PurePosixPath, targets):
        around = [PurePosixPath(area) for area in areas if target.is_relative_to(area)]
        if around:
            area = max(around, key=lambda path: len(path.parts))
            found.add(str(PurePosixPath(*target.parts[: len(area.parts) + 1])))
    return sorted(found - set(targets))


def _read_only_arguments(directories: Iterable[str]) -> list[str]:
    arguments: list[str] = []
    for name in _ROOT_ONLY_PROC if os.geteuid() == 0 else ():
        if os.path.exists(f"/proc/{name}"):
            arguments += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return [*arguments, *_each("--remount-ro", [*directories, "/dev", "/proc", "/"])]


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def command_line(
    bubblewrap: Bubblewrap,
    directory: SandboxDirectory,
    options: LocalSandboxConfig,
    binds: Sequence[Bind],
    workdir: str,
    user: SandboxUser | None,
    filter_fd: int | None,
    start: str,
) -> list[str]:
    """Return the argv that starts the sandbox under the filter in `filter_fd`, with process 1 running `start`."""
    arguments = [bubblewrap.program, *bubblewrap.isolation(user)]
    if filter_fd is not None:
        arguments += ["--seccomp", str(filter_fd)]
    if options.network != "host":
        arguments.append("--unshare-net")
    arguments += [*system_arguments(), *_etc_arguments(options.network, directory)]
    # The root is read-only, and test scripts name their directory.
    arguments += ["--symlink", "../tmp", "/var/tmp", "--symlink", "logs/tests", "/tests"]
    areas = {**directory.areas(workdir), **{bind.target: bind.source for bind in binds if bind.writable}}
    binds = [bind for bind in binds if not bind.writable]
    for target, source in areas.items():
        arguments += ["--bind", str(source), target]
    roots = [*interpreter_roots(), *([sys.prefix] if options.python_env else [])]
    shown = [*(Bind(Path(root), root) for root in roots), *binds, Bind(HERE / "supervisor", f"{SUPERVISOR}/supervisor")]
    hidden = _hidden_packages(options, shown)
    anchors = _anchors([bind.target for bind in shown], areas)
    arguments += _each("--tmpfs", anchors)
    for bind in shown:
        arguments += ["--bind" if bind.writable else "--ro-bind", str(bind.source), bind.target]
        for path, below in bind.links:
            arguments += ["--symlink", f"{bind.target}/{below}", path]
    arguments += [*_each("--tmpfs", hidden), *_read_only_arguments([*hidden, *anchors])]
    return [*arguments, "--chdir", SUPERVISOR, base_python(), "-E", "-s", "-S", "-c", start]
