"""Logprobs of an evaluation endpoint's answers, kept on the trace of the seat that asked for them.

verifiers passes them on to the agent and forgets them. A seat asks with its sampling (`--sampling.logprobs`); what an
agent's programs ask for does not get here, and the agent is not told them. Invariant: an entry is of the very call
whose answer its node holds, and has one logprob for each token that the endpoint reported, in the order of sampling.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from verifiers.v1.dialects.base import parse_sse_event
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import Trace

RECORD = "logprobs"
"""Key in a trace's `info`: for each answer its node, its tokens as texts, and their logprobs; absent without any."""

_heard: ContextVar[list[tuple[str, float]] | None] = ContextVar("opencode_env_logprobs", default=None)
"""Of the call that is served here, in the order of sampling; None where nobody asked."""


@contextmanager
def listening(session: RolloutSession | None) -> Iterator[None]:
    """Serve a request of a session; what its endpoint reports is heard if the session's seat asks for it."""
    asks = session is not None and bool(getattr(session.ctx.sampling, "logprobs", None))
    token = _heard.set([] if asks else None)
    try:
        yield
    finally:
        _heard.reset(token)


def is_asked_for() -> bool:
    """Whether the seat of the call that is served here asks."""
    return _heard.get() is not None


async def hearing(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same complete SSE events of a call that asks, heard."""
    async for chunk in chunks:
        if b'"logprobs"' in chunk:
            hear(parse_sse_event(chunk))
        yield chunk


def hear(answer: Any) -> None:
    """Take the logprobs out of an answer, or out of one event of it; what cannot be read is none."""
    heard = _heard.get()
    if heard is None or not isinstance(answer, dict):
        return
    for choice in answer.get("choices") or ():
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            reported = choice.pop("logprobs", None) or {}
            entries = [*(reported.get("content") or ()), *(reported.get("refusal") or ())]
            heard += [(str(entry["token"]), float(entry["logprob"])) for entry in entries]


def keep(trace: Trace[Any, Any, Any], node: int | None) -> None:
    """End a call: keep what was heard of the answer at `node`; None is a call that failed."""
    heard = _heard.get()
    if node is not None and heard:
        tokens, logprobs = zip(*heard, strict=True)
        entry = {"node": node, "tokens": list(tokens), "logprobs": list(logprobs)}
        trace.info.setdefault(RECORD, []).append(entry)
