"""Which model calls an agent's own program made, and which the programs that it started.

A harness whose program can keep a secret gives it a code for one run. The program makes a mark of it, `CODE:` and
something that only its own memory holds, and sends that along with every call: the first mark of a code is that run's,
and no other. So a code that somebody reads later is worth nothing. Neither code nor mark goes upstream.
"""

import asyncio
import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.traces import AnyTrace, agent_record

MARK_HEADER = "X-Agent-Mark"
PROGRAM_CALLS = "program_calls"
"""Key of the agent's record: the positions in `trace.calls` of the calls that the agent's programs made."""

RECORDED_PROGRAM_CALLS = 1000
"""Calls of programs after which a failed one leaves no record, so that a loop cannot fill the memory."""


class AgentProgram:
    """The agent's own program in one rollout: the mark by which its calls are known, and what they wait for. Without a
    code, of an agent that keeps no secret, every call is taken for its own."""

    def __init__(self) -> None:
        self._code = ""
        """Of the run that is on; empty between two runs."""
        self._mark: str | None = None
        """What the first call with that code bore."""
        self._runs = 0
        self._works: bool | None = None
        """Whether the rollout's first call, made before any program of the agent can run, bore a mark."""
        self.called = asyncio.Event()
        """Of the newest run: set by its first call that has the mark, as it arrives, answered or not."""
        self._silent_since: dict[object, float] = {}
        """When each of its calls was sent to the endpoint, or its stream last went on (monotonic seconds)."""
        self._answered: set[object] = set()
        """Those of them of whose answer something came, or which are not streamed, so that nothing can come of it."""
        self.cut_off = False
        """Whether the last of these was cancelled."""

    def new_run(self) -> str:
        """The code of the agent's next run; an older one, and its mark, count no more."""
        self._code, self._mark, self._runs = secrets.token_urlsafe(24), None, self._runs + 1
        self.called = asyncio.Event()
        return self._code

    def revoke(self) -> None:
        """Take no further call for the agent's own until its next run."""
        self._code, self._mark = "", None

    def forget(self) -> None:
        """Know nothing of the runs any more, as the agent has ended."""
        self.revoke()
        self._runs, self._works = 0, None

    @property
    def is_known(self) -> bool:
        """Whether its calls are known by their mark."""
        return bool(self._works)

    @property
    def longest_under_way(self) -> float:
        """Seconds for which the endpoint has been silent on some call of its own; 0 without one."""
        return time.monotonic() - min(self._silent_since.values()) if self._silent_since else 0.0

    @property
    def is_answered(self) -> bool:
        """Whether an answer was under way, as far as can be told: of a call that is at the endpoint, or was until it
        was cancelled."""
        return self.cut_off or bool(self._answered)

    @property
    def is_waiting(self) -> bool:
        """Whether a call of its own is at the endpoint."""
        return bool(self._silent_since)

    @contextmanager
    def at_the_endpoint(self, streamed: bool = True) -> Iterator[Callable[[], None]]:
        """A call of its own is at the endpoint until the end of the block; yields what says that its answer goes on.
        Neither what waits here before, nor an agent that does not read its answer, nor an answer that the policy makes
        long makes the silence longer."""
        call = object()
        self._silent_since[call], self.cut_off = time.monotonic(), False
        if not streamed:
            self._answered.add(call)

        def goes_on() -> None:
            self._silent_since[call] = time.monotonic()
            self._answered.add(call)

        try:
            yield goes_on
        except asyncio.CancelledError:
            self.cut_off = self.cut_off or call in self._answered
            raise
        finally:
            del self._silent_since[call]
            self._answered.discard(call)

    def identify(self, mark: str | None) -> "Caller":
        """Return who makes a call of the rollout that bears this mark, as it arrives."""
        caller = Caller(own=True)
        if self._runs:
            right = self._bears(mark)
            if self._works is None:
                self._works = right
            caller = Caller(right or not self._works, self._runs if right else 0)
        if caller.own:
            self.called.set()
        return caller

    def is_own(self, caller: "Caller") -> bool:
        """Whether a call counts as its own now: one that outlives its run counts as some program's."""
        return caller.own and (not self._runs or caller.run in (0, self._runs))

    def _bears(self, mark: str | None) -> bool:
        """Whether a call with that mark is the run's; takes up the first one."""
        if self._mark is None and self._code and mark is not None and mark.startswith(f"{self._code}:"):
            self._mark = mark
        known = self._mark is not None and mark is not None
        return known and hmac.compare_digest(str(mark).encode(errors="replace"), str(self._mark).encode())


class ProgramLoad:
    """The newest requests of the programs that one rollout's agent started, which can be why an endpoint fails its own
    calls: a request counts whether it is answered, is given up or is not a model call."""

    def __init__(self) -> None:
        self._requests: deque[list[float]] = deque(maxlen=1000)

    @contextmanager
    def carrying(self) -> Iterator[None]:
        """One request is at the endpoint until the end of the block."""
        span = [time.time(), float("inf")]
        self._requests.append(span)
        try:
            yield
        finally:
            span[1] = time.time()

    def between(self, start: float, end: float) -> int:
        """Return how many requests were at the endpoint at some moment of that time."""
        return sum(begun <= end and ended >= start for begun, ended in self._requests)


@dataclass(frozen=True)
class Caller:
    """Tells who makes a call: the agent's own program, in that run of it, or a program of the agent."""

    own: bool
    run: int = 0
    """Of the program whose mark the call bears, from 1; 0 without one."""


def note_program_call(trace: AnyTrace) -> None:
    """Note that a program made the call that was recorded last; of such calls that fail the trace keeps the first."""
    positions: list[int] = agent_record(trace).setdefault(PROGRAM_CALLS, [])
    if len(positions) >= RECORDED_PROGRAM_CALLS and trace.calls[-1].node is None:
        trace.calls.pop()
    else:
        positions.append(len(trace.calls) - 1)


def own_calls(trace: AnyTrace, first: int = 0) -> Sequence[ModelCall]:
    """The calls from position `first` on that the agent's programs did not make."""
    others = set(agent_record(trace).get(PROGRAM_CALLS, ()))
    return [call for position, call in enumerate(trace.calls[first:], first) if position not in others]


def program_calls(trace: AnyTrace, first: int = 0) -> Sequence[ModelCall]:
    """The calls from position `first` on that the agent's programs made; of very many failed ones the first."""
    return [trace.calls[position] for position in agent_record(trace).get(PROGRAM_CALLS, ()) if position >= first]
