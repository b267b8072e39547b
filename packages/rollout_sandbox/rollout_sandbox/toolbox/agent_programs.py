"""Programs of an agent's, run apart from what it left, from one another, and from what judges them.

`AgentPrograms` runs them one after another, each as if it were the first. Invariant: a program gets its own files and
its standard input and nothing else: no network, nothing of the agent's sandbox, and nothing that a program before it
left: no process, file or shared memory. What it printed is taken from it by its host, so it can say nothing for another
program. A program that cannot be run is an error, and never a result.

With the command `run-agent-code` verify commands run them without being at their mercy. Invariant: such a program
shares no process namespace or user with the verify commands, inherits none of their descriptors, and what it does is
data to them. Where it cannot be kept apart so, the rollout is an error. A sandbox that has a way of its own
(`RunsAgentCode`) offers it; elsewhere `run_agent_code.sh` does what the sandbox allows.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

NOT_REACHED = "not reached"
"""The status of a program for which no time was left."""
COMMAND = "run-agent-code"
"""What the command for verify commands is called."""


@dataclass(frozen=True)
class ProgramLimits:
    """What each program is bound to."""

    seconds: float
    """Wall-clock seconds of one program."""
    total_seconds: float
    """Seconds of all of them; the others are not run."""
    memory_bytes: int
    processes: int
    """Processes and threads at once."""
    output_bytes: int
    """The most that is read of each stream; a program that prints more is ended."""


@dataclass(frozen=True)
class ProgramBatch:
    """One program, to be run once for each of `inputs`."""

    argv: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content by name, in the directory where the program starts; all can be executed."""
    inputs: Sequence[str] = ("",)
    kept: str = ""
    """Name of a file that the program makes, to be taken out."""


@dataclass(frozen=True)
class ProgramEnd:
    """What one program did."""

    status: str
    """`exit N`, `signal N`, `timeout`, or `NOT_REACHED`."""
    out: str = ""
    err: str = ""
    kept: bytes | None = None
    """The file that was to be kept; None if the program made none."""


class AgentPrograms(Protocol):
    """A place where programs run."""

    async def run(self, batch: ProgramBatch, limits: ProgramLimits) -> list[ProgramEnd]:
        """What the program did with each input, in order."""
        ...


@runtime_checkable
class RunsAgentPrograms(Protocol):
    """A sandbox that makes such a place by itself, apart from what the agent left in it."""

    def agent_programs(self, limits: ProgramLimits) -> AbstractAsyncContextManager[AgentPrograms]: ...


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
