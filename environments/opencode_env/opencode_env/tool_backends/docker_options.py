"""Options of containers as Docker's Python client names them, as options of the command line."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

OURS = ("auto_remove", "detach", "name", "remove", "stdin_open", "template_commit_delay_s")
"""Options that a file may hold and that mean nothing: every container has its own name, and is always removed."""


def _one(flag: str, value: Any) -> list[str]:
    return [flag, str(value)]


def _switch(flag: str, value: Any) -> list[str]:
    return [flag] if value else []


def _each(flag: str, value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [word for item in values for word in (flag, str(item))]


def _pairs(separator: str, flag: str, value: Any) -> list[str]:
    items = [f"{key}{separator}{item}" for key, item in value.items()] if isinstance(value, Mapping) else value
    return _each(flag, items)


def _cpus(flag: str, value: Any) -> list[str]:
    return [flag, f"{value / 1e9:g}"]


_FLAGS: Mapping[str, tuple[str, Callable[[str, Any], list[str]]]] = {
    "cap_add": ("--cap-add", _each),
    "cap_drop": ("--cap-drop", _each),
    "cpu_period": ("--cpu-period", _one),
    "cpu_quota": ("--cpu-quota", _one),
    "cpu_shares": ("--cpu-shares", _one),
    "cpuset_cpus": ("--cpuset-cpus", _one),
    "devices": ("--device", _each),
    "dns": ("--dns", _each),
    "domainname": ("--domainname", _one),
    "entrypoint": ("--entrypoint", _one),
    "environment": ("--env", partial(_pairs, "=")),
    "extra_hosts": ("--add-host", partial(_pairs, ":")),
    "group_add": ("--group-add", _each),
    "hostname": ("--hostname", _one),
    "init": ("--init", _switch),
    "ipc_mode": ("--ipc", _one),
    "labels": ("--label", partial(_pairs, "=")),
    "mem_limit": ("--memory", _one),
    "memswap_limit": ("--memory-swap", _one),
    "nano_cpus": ("--cpus", _cpus),
    "network": ("--network", _one),
    "network_mode": ("--network", _one),
    "pids_limit": ("--pids-limit", _one),
    "platform": ("--platform", _one),
    "privileged": ("--privileged", _switch),
    "read_only": ("--read-only", _switch),
    "security_opt": ("--security-opt", _each),
    "shm_size": ("--shm-size", _one),
    "sysctls": ("--sysctl", partial(_pairs, "=")),
    "tmpfs": ("--tmpfs", partial(_pairs, ":")),
    "user": ("--user", _one),
    "userns_mode": ("--userns", _one),
    "working_dir": ("--workdir", _one),
}


def wrong_options(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The options that cannot be carried out: each one's name, and what to change."""
    for name, value in options.items():
        if name in OURS:
            continue
        if name not in _FLAGS:
            yield name, f"is not an option that can be given to a container; known are {', '.join(sorted(_FLAGS))}"
        elif name == "nano_cpus" and not isinstance(value, int | float):
            yield name, "must be a number"
        elif isinstance(value, list | dict) and _FLAGS[name][1] in (_one, _switch, _cpus):
            yield name, "must be a single value"


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Arguments of `podman run` for these options."""
    words = []
    for name, value in options.items():
        if name not in OURS and value is not None:
            flag, made = _FLAGS[name]
            words += made(flag, value)
    return words
