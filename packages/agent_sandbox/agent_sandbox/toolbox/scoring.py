"""What the scoring of one rollout shares: its time, and second sandboxes; and the one place where that is found.

verifiers calls a task, its rubric and a harness with a trace and a sandbox, and with nothing else of a rollout. So who
plays one attaches its state to those two (`attach`), and whoever is handed them asks for it (`attached`, `scoring_of`);
no other module keeps anything by the id of a trace. The trace itself holds it, in its private attributes, which are in
no dump.

Invariants: however many parts of a scoring wait at once, its clock stands still from the first to the last of them; a
scoring that took too long says whether programs used the time that may be the agent's; and a spare box has the task's
setup behind it, has never held an agent, and is gone when its context ends.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import verifiers.v1 as vf

_STATE = "_opencode_rollout"


class ScoringError(vf.TaskError):
    """Scoring could not be done; the message says what to do. Recorded with the stop `scoring_error`."""


@dataclass(frozen=True)
class BoxOrder:
    """In what a spare box differs from the agent's."""

    image: str | None = None
    """Container image; None is the agent's."""
    workdir: str | None = None
    """Work directory; None is the agent's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command, over those of the task."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the task's data that are other, by name."""


Provider = Callable[[BoxOrder], contextlib.AbstractAsyncContextManager[vf.Runtime]]


class ScoringTimeout(Exception):
    """The time was over.

    Args:
        message: what took too long.
        in_programs: whether programs used it: one ran in the end, or they ran for half of it.
    """

    def __init__(self, message: str, *, in_programs: bool = False) -> None:
        super().__init__(message)
        self.in_programs = in_programs


class Scoring:
    """What one rollout's scoring may ask for; an environment's own state of a rollout is one.

    Args:
        boxes: makes second sandboxes of the rollout; None is an environment that has none to give.
    """

    def __init__(self, boxes: Provider | None = None) -> None:
        self.boxes = boxes
        self._clock: _Clock | None = None

    def spare_box(self, order: BoxOrder | None = None) -> contextlib.AbstractAsyncContextManager[vf.Runtime]:
        """A second sandbox of the rollout: as the agent's was before the agent, or one for the tests alone.

        Raises:
            ScoringError: nobody offers any: the environment is not one of ours.
        """
        if self.boxes is None:
            raise ScoringError("this environment gives scoring no sandbox of its own: use opencode-env (--env.id)")
        return self.boxes(order or BoxOrder())

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
                clock = self._clock = _Clock(limit)
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            used = clock.cut or clock.in_programs >= seconds / 2
            raise ScoringTimeout(f"scoring took longer than {seconds:g} s", in_programs=used) from error
        finally:
            self._clock = None

    def not_counted(self) -> contextlib.AbstractContextManager[None]:
        """Stop the clock, if there is one."""
        return contextlib.nullcontext() if self._clock is None else self._clock.stopped()

    def in_program(self) -> contextlib.AbstractContextManager[None]:
        """Count the time of a program that may run the agent's code, if there is a clock."""
        return contextlib.nullcontext() if self._clock is None else self._clock.in_program()


class _Clock:
    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._waiting = 0
        self._left = 0.0
        self._running = 0
        self._started = 0.0
        self.in_programs = 0.0
        """Seconds in which at least one program ran."""
        self.cut = False
        """Whether one ran when the time was over."""

    @contextlib.contextmanager
    def in_program(self) -> Iterator[None]:
        if self._running == 0:
            self._started = asyncio.get_running_loop().time()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self.cut = self.cut or self._limit.expired()
            if self._running == 0:
                self.in_programs += asyncio.get_running_loop().time() - self._started

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


def attach(scoring: Scoring, holder: vf.Trace[Any, Any, Any] | vf.Runtime) -> None:
    """Let whoever is handed a trace, or a sandbox or a view of it, find the state of its rollout."""
    _fields(holder)[_STATE] = scoring


def attached(holder: vf.Trace[Any, Any, Any] | vf.Runtime) -> Scoring | None:
    """The state of the rollout that a trace or a sandbox is of; None where nobody has attached one."""
    found: Scoring | None = _fields(holder).get(_STATE)
    return found


def scoring_of(holder: vf.Trace[Any, Any, Any] | vf.Runtime) -> Scoring:
    """The same; where nobody has attached one, one without a limit and without second sandboxes."""
    return attached(holder) or Scoring()


def _fields(holder: Any) -> dict[str, Any]:
    fields: dict[str, Any] | None = holder.__pydantic_private__ if isinstance(holder, vf.Trace) else vars(holder)
    assert fields is not None
    return fields
