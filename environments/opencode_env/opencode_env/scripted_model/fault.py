"""What can go wrong with one reply, on purpose.

A `Fault` is attached to a `Reply` and changes how that reply travels; `playing.py` plays it.
Invariant: a fault carries only the settings its kind uses, so a misspelt script is refused when it is read.
"""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class FaultKind(StrEnum):
    """The ways a reply can fail; "stream" settings also work on a request that did not ask for a stream."""

    STATUS = "status"
    """An HTTP error: `status`, `body` (text, by default an OpenAI-style error object), `retry_after` (s)."""
    OVERFLOW = "overflow"
    """The 400 that vLLM gives to a prompt beyond the context window; `window` is the limit (tokens)."""
    HTML = "html"
    """200 with an HTML page (`body`), as a proxy or tunnel in the way sends it."""
    DELAY = "delay"
    """`seconds` of silence before the first byte, then the reply."""
    HANG = "hang"
    """Silence until the client goes, or for `seconds` and then a closed connection; `after`: in mid-stream."""
    SLOW = "slow"
    """`seconds` between two chunks."""
    CUT = "cut"
    """The connection is closed after `after` characters of the reply (text, reasoning, tool arguments)."""
    SSE_ERROR = "sse_error"
    """An error event (`body` is its message) after `after` characters, then the stream ends properly."""
    MALFORMED_SSE = "malformed_sse"
    """An event that is not JSON after `after` characters, then the stream ends."""
    NO_FINISH = "no_finish"
    """No finish reason, though the stream ends properly."""
    NO_DONE = "no_done"
    """No `[DONE]` at the end of the stream."""
    NO_USAGE = "no_usage"
    """No usage, though it was asked for."""
    NO_TOOL_CALL_ID = "no_tool_call_id"
    """Tool calls without an id."""


BREAKS = (FaultKind.HANG, FaultKind.CUT, FaultKind.SSE_ERROR, FaultKind.MALFORMED_SSE)
"""The kinds that stop the reply somewhere inside."""

_SETTINGS: dict[str, tuple[FaultKind, ...]] = {
    "status": (FaultKind.STATUS,),
    "retry_after": (FaultKind.STATUS,),
    "window": (FaultKind.OVERFLOW,),
    "body": (FaultKind.STATUS, FaultKind.HTML, FaultKind.SSE_ERROR),
    "seconds": (FaultKind.DELAY, FaultKind.HANG, FaultKind.SLOW),
    "after": BREAKS,
}
_REQUIRED = {FaultKind.STATUS: "status", FaultKind.DELAY: "seconds", FaultKind.SLOW: "seconds"}


class Fault(BaseModel):
    """One fault of one reply."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind
    attempts: int | None = Field(default=None, ge=1)
    """How many sends of the same call it spoils; None: every one. A retry is a request of the same conversation
    with the same messages (see `ChatRequest.call_key`)."""
    status: int | None = Field(default=None, ge=400, le=599)
    body: str | None = None
    retry_after: float | None = Field(default=None, ge=0)
    """Seconds, sent as the `retry-after` header."""
    window: int | None = Field(default=None, ge=1)
    """Tokens; None: the server's own window, or 4096."""
    seconds: float | None = Field(default=None, ge=0)
    after: int | None = Field(default=None, ge=0)
    """Characters; None: half of the reply (a hang: before the first byte). 0: after the response headers."""

    @model_validator(mode="after")
    def _only_the_settings_of_its_kind(self) -> Self:
        for name, kinds in _SETTINGS.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                allowed = ", ".join(kind.value for kind in kinds)
                raise ValueError(f'"{name}" means nothing to a {self.kind.value} fault, but to: {allowed}')
        required = _REQUIRED.get(self.kind)
        if required is not None and getattr(self, required) is None:
            raise ValueError(f'a {self.kind.value} fault needs "{required}"')
        return self
