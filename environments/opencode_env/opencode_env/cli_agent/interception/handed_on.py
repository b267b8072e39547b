"""A dialect that goes on with what was read here already: the body of a request, and the stream of its answer.

verifiers' server parses both, whatever stood before it. Invariant: what it goes on with is what it would have read.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from aiohttp import web
from verifiers.v1 import SamplingConfig
from verifiers.v1.dialects import Dialect, StreamParser
from verifiers.v1.dialects.base import RawRequest
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.gateway import Gateway

BODY = web.RequestKey("opencode_env_body", dict[str, Any])
"""On a request whose body is known: what it says."""

GATEWAY = web.RequestKey("opencode_env_gateway", Gateway)
"""On such a request: its rollout's."""


class _HandedOn(Dialect[Any]):
    """A mixin before a dialect class; one instance serves one request."""

    body: RawRequest
    note_finish_reason: Callable[[str], None] | None = None
    answer: Response | None = None
    """Of the first parser of this request that came to its end."""

    def apply_overrides(self, body: RawRequest, model: str, sampling: SamplingConfig) -> RawRequest:
        """This request's body with the rollout's model and sampling."""
        imposed: RawRequest = super().apply_overrides(self.body, model, sampling)  # type: ignore[safe-super]
        return imposed

    def stream_parser(self) -> StreamParser:
        """A parser of this request's answer; when one has read it, the others know it."""
        return _ReadOnce(self, super().stream_parser())  # type: ignore[safe-super]


class _ReadOnce(StreamParser):
    def __init__(self, dialect: _HandedOn, inner: StreamParser) -> None:
        self._dialect = dialect
        self._inner = inner
        self.on_done = inner.on_done

    def feed(self, raw: bytes) -> None:
        if self._dialect.answer is None:
            self._inner.feed(raw)

    def finish(self) -> Response:
        if self._dialect.answer is None:
            self._dialect.answer = self._inner.finish()
        return self._dialect.answer


@cache
def _handed_on_class(own: type[Dialect[Any]]) -> type[_HandedOn]:
    made = type(own.__name__, (_HandedOn, own), {"__module__": own.__module__})
    assert issubclass(made, _HandedOn)
    return made


def handed_on(dialect: Dialect[Any], request: web.Request) -> Dialect[Any]:
    """The dialect for one request, if its body is known; still of its own type, by which verifiers' clients ask."""
    if BODY not in request:
        return dialect
    made = _handed_on_class(type(dialect))()
    made.body = request[BODY]
    made.note_finish_reason = request[GATEWAY].note_finish_reason if GATEWAY in request else None
    return made
