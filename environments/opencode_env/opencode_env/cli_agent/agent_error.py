"""Errors that an agent can bring about at will, and what it needs for that: hands.

Nobody outside the sandbox can watch what ends a program inside, so the line is drawn by who could have done it
(`outcome_rule`). Before the model has called a tool no program of the agent exists.
"""

import signal
from typing import Literal, Protocol, runtime_checkable

from verifiers.v1.configs.retries import RetryConfig, RetryRule
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.runtimes import Runtime

from opencode_env.cli_agent.traces import AnyTrace, agent_record

AgentErrors = Literal["score", "error"]
"""What becomes of a run that the agent itself has broken: scored as it is, or an `AgentError`."""

_BROUGHT_ABOUT = (
    *("AgentError", "SandboxMemoryError", "SandboxDiskError", "SandboxEndedError", "SandboxFileError"),
    *("BrokenWorldError", "BrokenBackendError", "BrokenUserError"),
)
"""Names of the errors that an agent can bring about at will; those of the second line are of rooms above this one."""
_TO_MEND = ("SandboxAccessError",)
"""Those that no further try can mend."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


@runtime_checkable
class CountsLimitKills(Protocol):
    """A sandbox that ends what reaches its own limits."""

    async def limit_kills(self) -> dict[str, int]:
        """How many processes were ended, by limit: `memory`, …"""
        ...

    def kills_below_limits(self) -> int:
        """How many the kernel ended for want of memory though no limit of the sandbox's was reached."""
        ...


class AgentError(HarnessError):
    """The agent's program broke after the agent's own programs could have broken it, and that is not to be scored
    (`--env.agent-errors error`); `--env.retries` leaves it alone unless a rule says otherwise."""


class ConfigurationError(HarnessError):
    """A harness cannot run as it is configured, as its first model call shows or as was known before it started."""


def without_agent_errors(retries: RetryConfig) -> RetryConfig:
    """The same retries, but none for what an agent can bring about or no try can mend, where no rule of the user's
    matches that."""
    rules = [RetryRule(type=name, max_retries=0) for name in (*_BROUGHT_ABOUT, *_TO_MEND)]
    return retries.model_copy(
        update={"rules": [*retries.rules, *(rule for rule in rules if rule not in retries.rules)]}
    )


def has_hands(trace: AnyTrace) -> bool:
    """Whether a program of the agent's can have run: the model called a tool, or spoke to an agent that offers it none
    and acts on what it says."""
    said = trace.assistant_messages
    return any(message.tool_calls for message in said) or (bool(said) and not trace.tools)


async def killed_for_memory(trace: AnyTrace, runtime: Runtime) -> bool:
    """Whether an agent's program was killed while this machine's kernel ended processes of its sandbox for want of
    memory, and the agent had not reached a limit of its own, at which it can aim."""
    if agent_record(trace).get("exit_code") not in _KILLED or not isinstance(runtime, CountsLimitKills):
        return False
    try:
        return not (await runtime.limit_kills()).get("memory") and runtime.kills_below_limits() > 0
    except SandboxError:
        return False
