"""Processes that the kernel ended for want of memory: whose they were, and whether they were at a limit of their own.

The group of a killed process counts it, whoever ran out of memory. The machine's count alone says little: it has also
what reached the limit of any group, which programs of another sandbox can bring about.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

_NEARLY_BYTES = 1 << 20
"""The kernel takes memory in portions: so near to a limit, the next one may be too much."""


@dataclass(frozen=True)
class MemoryKills:
    """How many there were in a sandbox, since it started."""

    at_limit: int = 0
    below_limit: int = 0
    """Those that the machine had no memory for, although the sandbox has never reached its limit."""


def of_group(group: Path) -> MemoryKills:
    """What a control group of either version has counted."""
    for name in ("memory.events", "memory.oom_control"):
        if kills := _counts(group / name).get("oom_kill"):
            return MemoryKills(at_limit=kills) if _was_full(group) else MemoryKills(below_limit=kills)
    return MemoryKills()


def of_machine() -> int:
    """All of this machine's since it started."""
    return _counts(Path("/proc/vmstat")).get("oom_kill", 0)


def _was_full(group: Path) -> bool:
    if (group / "memory.events").exists():
        events = _counts(group / "memory.events")
        return bool(events.get("max") or events.get("oom"))
    # The first version's count of failures stays 0 in some kernels: the most that was used tells it.
    for limit in ("memory", "memory.memsw"):
        with contextlib.suppress(OSError):
            used, most = (int((group / f"{limit}.{name}_in_bytes").read_text()) for name in ("max_usage", "limit"))
            if used >= most - _NEARLY_BYTES:
                return True
    return False


def _counts(file: Path) -> dict[str, int]:
    with contextlib.suppress(OSError):
        words = (line.split() for line in file.read_text().splitlines())
        return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}
    return {}
