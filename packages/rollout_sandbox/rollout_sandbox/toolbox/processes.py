"""What a rubric knows about the agent in a sandbox: whether it can have replaced programs, and how to end it.

Invariant: only a sandbox of which that is known counts as trustworthy; of any other the agent is taken to be root.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol, runtime_checkable

import verifiers.v1 as vf

from rollout_sandbox.toolbox.scoring import scoring_of


@runtime_checkable
class TrustedSystem(Protocol):
    """A sandbox whose programs the agent cannot replace: the confined local one."""

    @property
    def trusted_python(self) -> str:
        """Absolute path inside of an interpreter with its whole standard library."""
        ...


@runtime_checkable
class EndsAgentProcesses(Protocol):
    """A sandbox that can tell the agent's processes from its own and end them."""

    async def mark_agent_start(self) -> None: ...

    async def end_agent_processes(self) -> None: ...


@runtime_checkable
class HoldsProcesses(Protocol):
    """A sandbox that can hold its processes still while one command runs alone."""

    def others_held(self) -> AbstractAsyncContextManager[vf.Runtime]: ...


def others_held(runtime: vf.Runtime) -> AbstractAsyncContextManager[vf.Runtime]:
    """A view of the sandbox that is alone in it while the context lasts, where the sandbox can do that.

    For commands that hold a secret: what `setup` started, and what the agent could make that run, is spared at the
    agent's end.
    """
    return runtime.others_held() if isinstance(runtime, HoldsProcesses) else nullcontext(runtime)


@runtime_checkable
class TellsCauses(Protocol):
    """A sandbox that knows which failures of its commands are not the doing of programs inside."""

    def agent_can_cause(self, error: vf.SandboxError) -> bool: ...


def agent_can_cause(runtime: vf.Runtime, error: vf.SandboxError) -> bool:
    """Whether programs inside can have made a command fail so; they can where the sandbox does not know."""
    return not isinstance(runtime, TellsCauses) or runtime.agent_can_cause(error)


async def end_agent(runtime: vf.Runtime) -> None:
    """End what the agent left running, on sandboxes that can tell it by identity; elsewhere that is the harness's
    task."""
    if isinstance(runtime, EndsAgentProcesses):
        with scoring_of(runtime).agents_time():
            await runtime.end_agent_processes()
