"""What a rubric knows about the agent in a sandbox: whether it can have replaced programs, and how to end it.

Invariant: only a sandbox of which that is known counts as trustworthy; of any other the agent is taken to be root.
"""

import asyncio
from typing import Protocol, runtime_checkable

import verifiers.v1 as vf

from opencode_rubrics.errors import ScoringError
from opencode_rubrics.sandbox.alive import require_alive
from opencode_rubrics.sandbox.programs import program_argv

_END_TIMEOUT = 60.0


@runtime_checkable
class TrustedSystem(Protocol):
    """A sandbox whose programs the agent cannot replace: the confined local one."""

    @property
    def trusted_python(self) -> str:
        """Absolute path inside of an interpreter with its whole standard library."""
        ...


@runtime_checkable
class EndsAgentProcesses(Protocol):
    """A sandbox that tells the agent's processes from its own."""

    async def end_agent_processes(self) -> None: ...


async def end_agent(runtime: vf.Runtime) -> None:
    """End what the agent left running, on sandboxes that can tell it by identity.

    Elsewhere that is the harness's task (see `end_agent_user` for containers with an agent user).

    Raises:
        vf.SandboxError: It could not be done.
    """
    if isinstance(runtime, EndsAgentProcesses):
        await runtime.end_agent_processes()


async def end_agent_user(runtime: vf.Runtime, user: str) -> bool:
    """End all processes of the agent's user in a container; False if that user is root, so that nothing is ended.

    Raises:
        ScoringError: There is no such user, or processes survive.
        vf.SandboxError: The sandbox is gone.
    """
    try:
        async with asyncio.timeout(_END_TIMEOUT):
            result = await runtime.run(program_argv("kill_user", user), {})
    except TimeoutError:
        await require_alive(runtime, f"ending the processes of {user!r}")
        raise ScoringError(f"the processes of agent_user {user!r} could not be ended within 60 s") from None
    if result.exit_code != 0:
        await require_alive(runtime, f"ending the processes of {user!r}")
        raise ScoringError(f"the processes of agent_user {user!r} could not be ended (exit code {result.exit_code})")
    return result.stdout.strip() != "0"
