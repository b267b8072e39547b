"""What the scoring of one rollout shares: its time, and second sandboxes; and the one place where that is found.

verifiers calls a task, its rubric and a harness with a trace and a sandbox, and with nothing else of a rollout. So who
plays one attaches its state to those two (`attach`), and whoever is handed them asks for it (`attached`, `scoring_of`).

An error in scoring is the agent's doing, and a reward of 0, unless it is `exempt`: it was raised where nothing of the
agent's has a part (`not_the_agents`), or this machine ran out of what it has. `opencode_rubrics.rubric` acts on that.
"""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import verifiers.v1 as vf

from rollout_sandbox.compat import abilities_of, hidden_fields
from rollout_sandbox.errors import ScoringError, ScoringTimeout

ErrorT = TypeVar("ErrorT", bound=BaseException)

_STATE = "_opencode_rollout"
_AGENTS = "_opencode_agents_own"
_EXEMPT = "_opencode_exempt"
_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_RESOURCES = _DESCRIPTORS | {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN}


@contextlib.contextmanager
def not_the_agents() -> Iterator[None]:
    """Have what the body raises be an error of the row, the configuration or the place, and never the agent's 0: for
    preparations, controls, and work in a sandbox that holds nothing of the agent's."""
    try:
        yield
    except Exception as error:
        exempt(error)
        raise


def exempt(error: ErrorT) -> ErrorT:
    """The same error, which from now on is not the agent's, also where another is raised from it."""
    hidden_fields(error)[_EXEMPT] = True
    return error


def not_exempt(error: BaseException) -> None:
    """Take that off an error again: who raised it may keep it, and raise it over what another agent made."""
    hidden_fields(error).pop(_EXEMPT, None)


def is_exempt(error: BaseException) -> bool:
    """Whether an error, or one behind it, is `exempt`, or says that this machine ran out of disk, memory, descriptors
    or processes. In an error of a sandbox only descriptors count: its disk and memory may be the agent's to fill."""
    behind = causes(error)
    if any(_EXEMPT in hidden_fields(one) for one in behind):
        return True
    known = _DESCRIPTORS if any(isinstance(one, vf.SandboxError) for one in behind) else _RESOURCES
    return any(_exhausted(one, known) for one in behind)


def _exhausted(error: BaseException, known: frozenset[int]) -> bool:
    if isinstance(error, OSError):
        return error.errno in known
    if isinstance(error, RuntimeError):
        return "can't start new thread" in said(error) or (isinstance(error, BrokenExecutor) and _short_of_memory())
    # Python's parser raises it for what is nested deeply, and any allocation for a size that nobody has.
    return isinstance(error, MemoryError) and _short_of_memory()


def _short_of_memory() -> bool:
    """Whether this machine has less than a fiftieth of its memory left."""
    lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    sizes = {name: int(size) for name, size, *_ in lines}
    return sizes["MemAvailable:"] * 50 < sizes["MemTotal:"]


def said(error: BaseException) -> str:
    """The message of an error, whatever it is made of: an integer of many digits has no text."""
    try:
        return str(error)
    except Exception as problem:  # noqa: BLE001 - whatever its own code does
        return f"(no text: {type(problem).__name__})"


def causes(error: BaseException) -> list[BaseException]:
    """An error, what brought it about, and what groups among these hold."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or any(one is known for known in found):
            continue
        found.append(one)
        left += [one.__cause__ or (None if one.__suppress_context__ else one.__context__)]
        left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    return found


@dataclass(frozen=True)
class SecondSandboxOptions:
    """Says in what a second sandbox differs from the agent's."""

    image: str | None = None
    """Container image; None is the agent's."""
    workdir: str | None = None
    """Work directory; None is the agent's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command, over those of the task."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the task's data that are other, by name."""


Provider = Callable[[SecondSandboxOptions], contextlib.AbstractAsyncContextManager[vf.Runtime]]


class Scoring:
    """Holds what one rollout's scoring may ask for; an environment's own state of a rollout is one. `boxes` makes
    second sandboxes; None is an environment that has none to give."""

    def __init__(self, boxes: Provider | None = None) -> None:
        self.boxes = boxes
        self._clock: _Clock | None = None

    @contextlib.asynccontextmanager
    async def second_sandbox(self, order: SecondSandboxOptions | None = None) -> AsyncIterator[vf.Runtime]:
        """A second sandbox of the rollout: as the agent's was before the agent, or one for the tests alone. What keeps
        it from being made is not the agent's.

        Raises:
            ScoringError: nobody offers any: the environment is not one of ours.
        """
        async with contextlib.AsyncExitStack() as stack:
            with not_the_agents():
                if self.boxes is None:
                    told = "this environment gives scoring no sandbox of its own: use opencode-env (--env.id)"
                    raise ScoringError(told)
                box = await stack.enter_async_context(self.boxes(order or SecondSandboxOptions()))
            yield box

    @contextlib.asynccontextmanager
    async def time(self, seconds: float | None) -> AsyncIterator[None]:
        """Let the body take so many seconds, without what it waits in `not_counted`; None: no limit.

        Raises:
            ScoringTimeout: it took longer.
        """
        if seconds is None:
            yield
            return
        try:
            async with asyncio.timeout(seconds) as limit:
                clock = self._clock = _Clock(limit, seconds)
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            used = clock.cut or clock.agents >= seconds / 2
            raise ScoringTimeout(f"scoring took longer than {seconds:g} s", agents=used) from error
        finally:
            self._clock = None

    def not_counted(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._clock is None else self._clock.stopped()

    def agents_time(self) -> contextlib.AbstractContextManager[None]:
        """Count the time of a program that may run the agent's code, or of work that is bounded by what it made alone
        (listing, unpacking or taking out its files), if there is a clock."""
        return contextlib.nullcontext() if self._clock is None else self._clock.agents_time()

    @contextlib.asynccontextmanager
    async def control(self) -> AsyncIterator[None]:
        """Let the body, which scores an answer of ours, take as long as the whole scoring may, on a clock of its own.
        What it raises is not the agent's.

        Raises:
            ScoringError: it took longer.
        """
        clock = self._clock
        with not_the_agents(), self.not_counted():
            self._clock = None
            try:
                async with asyncio.timeout(None if clock is None else clock.seconds) as limit:
                    yield
            except TimeoutError as error:
                if limit.expired():
                    raise ScoringError("it took longer than scoring may") from error
                raise
            finally:
                self._clock = clock


class _Clock:
    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self.seconds = seconds
        self._limit = limit
        self._waiting = 0
        self._left = 0.0
        self._running = 0
        self._started = 0.0
        self.agents = 0.0
        """Seconds that were the agent's."""
        self.cut = False
        """Whether the time was over in the middle of those."""

    @contextlib.contextmanager
    def agents_time(self) -> Iterator[None]:
        if self._running == 0:
            self._started = asyncio.get_running_loop().time()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self.cut = self.cut or self._limit.expired()
            if self._running == 0:
                self.agents += asyncio.get_running_loop().time() - self._started

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        when = self._limit.when()
        if self._waiting == 0 and when is not None:
            self._left = when - asyncio.get_running_loop().time()
            self._limit.reschedule(None)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self._limit.expired():
                self._limit.reschedule(asyncio.get_running_loop().time() + self._left)


def attach(scoring: Scoring, holder: vf.Trace[Any, Any, Any] | vf.Runtime, *, agents: bool = False) -> None:
    """Let whoever is handed a trace or a sandbox find its rollout's state; `agents` is the agent's own sandbox."""
    hidden_fields(holder).update({_STATE: scoring, _AGENTS: agents})


def attached(holder: vf.Trace[Any, Any, Any] | vf.Runtime) -> Scoring | None:
    """The state of the rollout that a trace or a sandbox is of; None where nobody has attached one."""
    found: Scoring | None = hidden_fields(holder).get(_STATE)
    return found


def scoring_of(holder: vf.Trace[Any, Any, Any] | vf.Runtime) -> Scoring:
    """The same; where nobody has attached one, one without a limit and without second sandboxes."""
    return attached(holder) or Scoring()


def command_time(runtime: vf.Runtime) -> contextlib.AbstractContextManager[None]:
    """Count the time of a command as the agent's in the sandbox in which the agent worked."""
    return scoring_of(runtime).agents_time() if hidden_fields(runtime).get(_AGENTS) else contextlib.nullcontext()


async def end_agent(runtime: vf.Runtime) -> None:
    """End what the agent left running, where the sandbox can tell it; elsewhere the harness has ended it."""
    sandbox = abilities_of(runtime)
    if sandbox.can_end_agent:
        with scoring_of(runtime).agents_time():
            await sandbox.end_agent_processes()
