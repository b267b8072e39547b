"""What a sandbox sees: the bubblewrap arguments of one rollout.

Invariant: only the private parts of the sandbox's own directory are writable. Everything else is read-only, /proc
included: a host root keeps its uid towards the kernel, and /proc/sys asks for the uid alone.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from verifiers.v1.errors import TaskError

from rollout_sandbox.confined.bubblewrap import Bubblewrap, system_arguments
from rollout_sandbox.confined.config import Bind, LocalSandboxConfig
from rollout_sandbox.confined.directory import ROOT, SandboxDirectory
from rollout_sandbox.confined.interpreter import base_python, interpreter_roots
from rollout_sandbox.confined.users import SandboxUser

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
    """Refuse a work directory that would hide a part of the system.

    Raises:
        TaskError: it is the root, or lies in or around a directory of the system.
    """
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
