"""Which model calls an agent's own program made, and which the programs that it started.

A harness whose program can keep a secret gives it a code for one run. The program makes a mark of it, `CODE:` and
something that only its own memory holds, and sends that along with every call: the first mark of a code is that run's,
and no other. So a code that somebody reads later is worth nothing. Invariant: a code is made new for every run and
leaves this process only with `new_mark`; neither it nor the mark goes upstream; what was begun under an older one is no
call of this run.
"""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
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


@dataclass
class _Marked:
    code: str = ""
    """Of the run that is on; empty between two runs."""
    mark: str | None = None
    """What the first call with that code bore."""
    runs: int = 0
    works: bool | None = None
    """Whether the rollout's first call, made before any program of the agent can run, bore a mark."""
    called: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first call of the run that has the mark, as it arrives."""

    def bears(self, mark: str | None) -> bool:
        """Whether a call with that mark is the run's; takes up the first one."""
        if self.mark is None and self.code and mark is not None and mark.startswith(f"{self.code}:"):
            self.mark = mark
        known = self.mark is not None and mark is not None
        return known and hmac.compare_digest(str(mark).encode(errors="replace"), str(self.mark).encode())


@dataclass(frozen=True)
class _Caller:
    """Who makes the call that is served here: the agent's own program, in that run of it, or a program of the agent."""

    own: bool
    run: int = 0


_rollouts: dict[str, _Marked] = {}
"""By trace id, from `new_mark` to `forget_mark`."""
_caller: ContextVar[_Caller | None] = ContextVar("opencode_env_caller", default=None)


def new_mark(trace: AnyTrace) -> str:
    """The code of the agent's next run; an older one, and its mark, count no more."""
    marked = _rollouts.setdefault(trace.id, _Marked())
    marked.code, marked.mark, marked.runs = secrets.token_urlsafe(24), None, marked.runs + 1
    marked.called = asyncio.Event()
    return marked.code


def revoke_mark(trace: AnyTrace) -> None:
    """Take no further call for the agent's own until its next run; idempotent."""
    if (marked := _rollouts.get(trace.id)) is not None:
        marked.code, marked.mark = "", None


def borne_by_own_program() -> bool:
    """Whether the call that is served here bears the mark of the agent's own program."""
    caller = _caller.get()
    return caller is not None and caller.run > 0


def forget_mark(trace: AnyTrace) -> None:
    """Keep nothing of a rollout whose agent has ended; idempotent."""
    _rollouts.pop(trace.id, None)


def has_called(trace: AnyTrace) -> bool:
    """Whether the agent's own program has sent a model call in its newest run, answered or not."""
    return _rollouts[trace.id].called.is_set()


async def until_called(trace: AnyTrace) -> None:
    """Return once `has_called` says so."""
    await _rollouts[trace.id].called.wait()


def telling(serve: Handler, dialect: Dialect[Any], sessions: Mapping[str, RolloutSession]) -> Handler:
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
        caller = _identify(session.trace, mark)
        if caller.own and session.trace.id in _rollouts:
            _rollouts[session.trace.id].called.set()
        token, before = _caller.set(caller), session.error
        try:
            return await serve(request)
        finally:
            if not _is_own(session.trace, caller):
                session.error = before
            _caller.reset(token)

    return handler


def knows_own(trace: AnyTrace) -> bool:
    """Whether the calls of the agent's own program are known by their mark."""
    marked = _rollouts.get(trace.id)
    return marked is not None and bool(marked.works)


def is_by_program() -> bool:
    """Whether the call that is served here is known to be one of the agent's programs."""
    caller = _caller.get()
    return caller is not None and not caller.own


def note_call(trace: AnyTrace) -> None:
    """Note whose the call is that was recorded last, where its request is served.

    Of a program's calls that fail the trace keeps the first ones.
    """
    caller = _caller.get()
    if caller is None or _is_own(trace, caller):
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


def _identify(trace: AnyTrace, mark: str | None) -> _Caller:
    marked = _rollouts.get(trace.id)
    if marked is None:
        return _Caller(own=True)
    right = marked.bears(mark)
    if marked.works is None:
        marked.works = right
    return _Caller(right or not marked.works, marked.runs if right else 0)


def _is_own(trace: AnyTrace, caller: _Caller) -> bool:
    """Whether a call counts as the own program's now: one that outlives its run counts as some program's."""
    marked = _rollouts.get(trace.id)
    return caller.own and (marked is None or caller.run in (0, marked.runs))
