"""Who broke an agent's run: its own programs, or the machinery.

Nobody outside the sandbox can watch what ends a program inside, so the line is drawn by who could have done it. Before
the model has called a tool no program of the agent exists: the failure is the machinery's. From then on it is the
agent's own, unless its program was killed while the kernel ended processes for want of memory.
"""

import signal
from pathlib import Path
from typing import Protocol, runtime_checkable

from verifiers.v1.configs.retries import RetryConfig, RetryRule
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.runtimes import Runtime

from opencode_env.cli_agent.traces import AnyTrace, agent_record

_VMSTAT = Path("/proc/vmstat")
_CGROUP_EVENTS = "/sys/fs/cgroup/memory.events"
_BROUGHT_ABOUT = (
    *("AgentError", "SandboxMemoryError", "SandboxEndedError", "SandboxFileError"),
    *("BrokenWorldError", "BrokenBackendError", "BrokenUserError"),
)
"""Names of the errors that an agent can bring about at will; those of the second line are of rooms above this one."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


@runtime_checkable
class CountsLimitKills(Protocol):
    """A sandbox that ends what reaches its own limits."""

    async def limit_kills(self) -> dict[str, int]:
        """How many processes were ended, by limit: `memory`, …"""
        ...


class AgentError(HarnessError):
    """The agent's program broke after the agent's own programs could have broken it; `--env.retries` leaves it alone
    unless a rule says otherwise."""


def without_agent_errors(retries: RetryConfig) -> RetryConfig:
    """The same retries, but none for what an agent can bring about, where no rule of the user's matches that."""
    rules = [RetryRule(type=name, max_retries=0) for name in _BROUGHT_ABOUT]
    return retries.model_copy(
        update={"rules": [*retries.rules, *(rule for rule in rules if rule not in retries.rules)]}
    )


def memory_kills() -> int:
    """Processes that this machine's kernel has ended for want of memory since it started."""
    return _counted(_VMSTAT.read_text())


async def blamed(error: HarnessError, trace: AnyTrace, runtime: Runtime, kills_before: int) -> HarnessError:
    """The failure of an agent's program as the error of whoever can have caused it.

    Args:
        error: the failure.
        trace: its rollout's.
        runtime: where the agent runs.
        kills_before: `memory_kills()` before it ran.
    """
    if not has_hands(trace) or isinstance(error, AgentError):
        return error
    if agent_record(trace).get("exit_code") in _KILLED and await _short_of_memory(runtime, kills_before):
        return HarnessError(f"{error}\nprocesses were killed for want of memory meanwhile")
    return AgentError(f"{error}\nthe agent's own programs could have done that: it is not tried again by default")


def has_hands(trace: AnyTrace) -> bool:
    """Whether the model called a tool that could be carried out."""
    return any(call.id for message in trace.assistant_messages for call in message.tool_calls or [])


async def _short_of_memory(runtime: Runtime, kills_before: int) -> bool:
    try:
        if isinstance(runtime, CountsLimitKills) and (await runtime.limit_kills()).get("memory"):
            return False  # of its own limit, which neighbours do not share
        if runtime.is_local:
            return memory_kills() > kills_before
        found = await runtime.run(["cat", _CGROUP_EVENTS], {})
    except SandboxError:
        return True
    return _counted(found.stdout) > 0


def _counted(text: str) -> int:
    """The counter `oom_kill` of /proc/vmstat or of a cgroup's memory.events."""
    return sum(int(words[1]) for line in text.splitlines() if (words := line.split())[:1] == ["oom_kill"])
