"""Which model calls an agent's own program made, and which the programs that it started.

A harness whose program can keep a secret gives it a mark that it sends along with every call. Invariant: the mark is
made new for every run of the program and leaves this process only with `new_mark`; it never goes upstream.
"""

import hmac
import secrets
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


@dataclass
class _Marked:
    mark: str
    works: bool | None = None
    """Whether the rollout's first call, made before any program of the agent can run, carried the mark."""


_rollouts: dict[str, _Marked] = {}
"""By trace id, from `new_mark` to `forget_mark`."""
_by_program: ContextVar[bool] = ContextVar("opencode_env_call_by_program", default=False)


def new_mark(trace: AnyTrace) -> str:
    """The mark of the agent's next run; an older one counts no more."""
    marked = _rollouts.setdefault(trace.id, _Marked(""))
    marked.mark = secrets.token_urlsafe(24)
    return marked.mark


def forget_mark(trace: AnyTrace) -> None:
    """Keep nothing of a rollout whose agent has ended; idempotent."""
    _rollouts.pop(trace.id, None)


def telling(serve: Handler, dialect: Dialect[Any], sessions: Mapping[str, RolloutSession]) -> Handler:
    """The same handler, which takes the mark off a request and knows whose call it is.

    A failed call of a program is not put where verifiers looks for what ended the agent.
    """

    async def handler(request: web.Request) -> web.StreamResponse:
        mark = request.headers.get(MARK_HEADER)
        session = sessions.get(dialect.secret(request.headers))
        own = session is None or _is_own(session.trace, mark)
        if mark is not None:
            kept = [(name, value) for name, value in request.headers.items() if name.lower() != MARK_HEADER.lower()]
            request = request.clone(headers=kept)
        if own or session is None:
            return await serve(request)
        token, before = _by_program.set(True), session.error
        try:
            return await serve(request)
        finally:
            session.error = before
            _by_program.reset(token)

    return handler


def note_call(trace: AnyTrace) -> None:
    """Note whose the call is that was recorded last, where its request is served.

    Of a program's calls that fail the trace keeps the first ones.
    """
    if not _by_program.get():
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


def _is_own(trace: AnyTrace, mark: str | None) -> bool:
    marked = _rollouts.get(trace.id)
    if marked is None:
        return True
    right = mark is not None and hmac.compare_digest(mark.encode(errors="replace"), marked.mark.encode())
    if marked.works is None:
        marked.works = right
    return right or not marked.works
