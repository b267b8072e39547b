"""Which model calls an agent's own program made, and which the programs that it started.

A harness whose program can keep a secret gives it a code for one run. The program makes a mark of it, `CODE:` and
something that only its own memory holds, and sends that along with every call: the first mark of a code is that run's,
and no other. So a code that somebody reads later is worth nothing. Invariant: a code is made new for every run and
leaves this process only with `AgentProgram.new_run`; neither it nor the mark goes upstream; what was begun under an
older one is no call of this run.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from verifiers.v1.dialects import Dialect
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.traces import AnyTrace, agent_record

MARK_HEADER = "X-Agent-Mark"
PROGRAM_CALLS = "program_calls"
"""Key of the agent's record: the positions in `trace.calls` of the calls that the agent's programs made."""

RECORDED_PROGRAM_CALLS = 1000
"""Calls of programs after which a failed one leaves no record, so that a loop cannot fill the memory."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AgentProgram:
    """The agent's own program in one rollout: the mark by which its calls are known, and what they wait for.

    Without a code, of an agent that keeps no secret, every call is taken for its own.
    """

    def __init__(self) -> None:
        self._code = ""
        """Of the run that is on; empty between two runs."""
        self._mark: str | None = None
        """What the first call with that code bore."""
        self._runs = 0
        self._works: bool | None = None
        """Whether the rollout's first call, made before any program of the agent can run, bore a mark."""
        self._called = asyncio.Event()
        """Set by the first call of the run that has the mark, as it arrives."""
        self.under_way: dict[object, float] = {}
        """When each of its calls was sent to the endpoint, or its stream last went on (monotonic seconds)."""

    def new_run(self) -> str:
        """The code of the agent's next run; an older one, and its mark, count no more."""
        self._code, self._mark, self._runs = secrets.token_urlsafe(24), None, self._runs + 1
        self._called = asyncio.Event()
        return self._code

    def revoke(self) -> None:
        """Take no further call for the agent's own until its next run; idempotent."""
        self._code, self._mark = "", None

    def forget(self) -> None:
        """Know nothing of the runs any more, as the agent has ended; idempotent."""
        self.revoke()
        self._runs, self._works = 0, None

    @property
    def has_called(self) -> bool:
        """Whether it has sent a model call in its newest run, answered or not."""
        return self._called.is_set()

    async def until_called(self) -> None:
        """Return once `has_called` says so."""
        await self._called.wait()

    @property
    def is_known(self) -> bool:
        """Whether its calls are known by their mark."""
        return bool(self._works)

    @property
    def longest_under_way(self) -> float:
        """Seconds for which the endpoint has been silent on some call of its own; 0 without one."""
        return time.monotonic() - min(self.under_way.values()) if self.under_way else 0.0

    def identify(self, trace_id: str, mark: str | None) -> "Caller":
        """Who makes a call of the rollout of that trace, which bears this mark, as it arrives."""
        if not self._runs:
            self._called.set()
            return Caller(self, trace_id, own=True)
        right = self._bears(mark)
        if self._works is None:
            self._works = right
        caller = Caller(self, trace_id, right or not self._works, self._runs if right else 0)
        if caller.own:
            self._called.set()
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


@dataclass(frozen=True)
class Caller:
    """Who makes the call that is served here: the agent's own program, in that run of it, or a program of the agent."""

    program: AgentProgram
    trace_id: str
    own: bool
    run: int = 0


_caller: ContextVar[Caller | None] = ContextVar("opencode_env_caller", default=None)


def current_caller() -> Caller | None:
    """Who makes the call that is served here."""
    return _caller.get()


def borne_by_own_program() -> bool:
    """Whether the call that is served here bears the mark of the agent's own program."""
    caller = _caller.get()
    return caller is not None and caller.run > 0


def telling(
    serve: Handler,
    dialect: Dialect[Any],
    sessions: Mapping[str, RolloutSession],
    program_of: Callable[[AnyTrace], AgentProgram],
) -> Handler:
    """The same handler, which takes the mark off a request and knows whose call it is.

    A failed call of a program is not put where verifiers looks for what ended the agent.
    """

    async def handler(request: web.Request) -> web.StreamResponse:
        mark = request.headers.get(MARK_HEADER)
        session = sessions.get(dialect.secret(request.headers))
        if mark is not None:
            kept = [(name, value) for name, value in request.headers.items() if name.lower() != MARK_HEADER.lower()]
            request = request.clone(headers=kept)
        if session is None:
            return await serve(request)
        program = program_of(session.trace)
        caller = program.identify(session.trace.id, mark)
        token, before = _caller.set(caller), session.error
        try:
            return await serve(request)
        finally:
            if not program.is_own(caller):
                session.error = before
            _caller.reset(token)

    return handler


def is_by_program() -> bool:
    """Whether the call that is served here is known to be one of the agent's programs."""
    caller = _caller.get()
    return caller is not None and not caller.own


def note_call(trace: AnyTrace) -> None:
    """Note whose the call is that was recorded last, where its request is served.

    Of a program's calls that fail the trace keeps the first ones.
    """
    caller = _caller.get()
    if caller is None or caller.program.is_own(caller):
        return
    positions: list[int] = agent_record(trace).setdefault(PROGRAM_CALLS, [])
    if len(positions) >= RECORDED_PROGRAM_CALLS and trace.calls[-1].node is None:
        trace.calls.pop()
    else:
        positions.append(len(trace.calls) - 1)


def own_calls(trace: AnyTrace, first: int = 0) -> Sequence[ModelCall]:
    """The calls from position `first` on that the agent's programs did not make."""
    others = set(agent_record(trace).get(PROGRAM_CALLS, ()))
    return [call for position, call in enumerate(trace.calls[first:], first) if position not in others]


def program_calls(trace: AnyTrace) -> Sequence[ModelCall]:
    """The calls that the agent's programs made; of very many failed ones the first."""
    return [trace.calls[position] for position in agent_record(trace).get(PROGRAM_CALLS, ())]
