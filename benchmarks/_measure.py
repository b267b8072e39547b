"""Measures what a piece of work costs: wall time, and the CPU of every process it started, orphans included."""

import contextlib
import ctypes
import json
import os
import platform
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Cost:
    """Wall and CPU seconds of one contender."""

    wall: float = 0.0
    cpu: float = 0.0


def adopt_orphans() -> None:
    """Become the reaper of every descendant, so that daemons of a container engine are counted too."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


@contextlib.contextmanager
def measured(cost: Cost) -> Iterator[None]:
    """Fill `cost` with what the body used in this process and in all descendants that ended."""
    started, before = time.perf_counter(), _cpu()
    try:
        yield
    finally:
        cost.wall = time.perf_counter() - started
        _reap_orphans()
        cost.cpu = _cpu() - before


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _reap_orphans(patience: float = 2.0) -> None:
    """Wait for adopted processes that are ending; what still runs after `patience` seconds is left alone."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.02)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def machine() -> dict[str, str]:
    """Versions and machine that figures belong to."""
    return {
        "python": platform.python_version(),
        "verifiers": version("verifiers"),
        "opencode-env": version("opencode-env"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
    }


def report(
    name: str,
    ratios: Mapping[str, float],
    goals: Mapping[str, float],
    detail: Mapping[str, object],
    *,
    as_json: bool = False,
) -> None:
    """Print the result as a table for people, each ratio beside its goal; then, if asked for, as one line of JSON."""
    print(_table(name, ratios, goals, detail))
    if as_json:
        print(json.dumps({"name": name, "ratios": ratios, "goals": goals, "detail": detail}))


def _table(name: str, ratios: Mapping[str, float], goals: Mapping[str, float], detail: Mapping[str, object]) -> str:
    lines = [name]
    for key, value in ratios.items():
        goal = goals.get(key)
        lines.append(f"  {key:32} {value:8.3f}" + (f"   goal {goal:g}" if goal is not None else ""))
    lines += [f"  {key}: {value}" for key, value in detail.items()]
    return "\n".join(lines)
