"""The command `run-agent-code`: how verify commands run programs of the agent's without being at their mercy.

Invariant: such a program shares no process namespace or user with the verify commands, inherits none of their
descriptors, and what it does is data to them. Where it cannot be kept apart so, the rollout is an error. A sandbox that
has a way of its own (`RunsAgentCode`) offers it; elsewhere `run_agent_code.sh` does what the sandbox allows.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

COMMAND = "run-agent-code"
"""What the command is called."""


class AgentCode(Protocol):
    """The command, while it can be used."""

    tools: str
    """Directory in the sandbox that holds the command, for the front of `PATH`."""
    shared: str
    """Directory in the sandbox that verify commands and the programs can both write, empty at first."""
    scratch: str
    """Directory in the sandbox that the programs do not see."""
    failure: str | None
    """Why a program could not be run; that is never the program's own doing."""


@runtime_checkable
class RunsAgentCode(Protocol):
    """A sandbox that runs agent code in a way of its own."""

    def agent_code(self) -> AbstractAsyncContextManager[AgentCode]: ...
