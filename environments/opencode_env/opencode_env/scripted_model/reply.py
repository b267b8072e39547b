"""What the scripted model says to one request, before it is put on the wire, and what goes wrong with it on purpose.

Invariant: a `Reply` is immutable and complete, so that one reply can answer any number of requests. A `Fault` changes
how it travels (`playing` plays it) and carries only the settings its kind uses, so a misspelt script is refused when
it is read.
"""

import json
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

MODEL_ID = "scripted-model"
"""The one model id it lists and answers with, whatever model a request asked for."""

LABEL = "opencode-env scripted model, not a language model"
"""`owned_by` in the model list, `system_fingerprint` of every answer, first words of the start-up line."""

CHARACTERS_PER_TOKEN = 4
"""The scripted model's whole tokenizer; used for usage and for the context window."""


def tokens_of(characters: int) -> int:
    """The token count the scripted model claims for so many characters (rounded up)."""
    return -(-characters // CHARACTERS_PER_TOKEN)


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Said):
    """One tool call; a string as `arguments` is sent as it is, so that it can be malformed JSON."""

    name: str
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    id: str | None = None
    """None: made from the conversation, the turn and the position, the same in every run."""

    @property
    def arguments_json(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Usage(_Said):
    """Token counts to report instead of the counted ones."""

    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


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


class Fault(_Said):
    """One fault of one reply."""

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


class Reply(_Said):
    """One assistant message; all fields empty is the empty answer of a model that said nothing."""

    text: str = ""
    reasoning: str = ""
    reasoning_key: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    """The name under which the reasoning is sent."""
    tool_calls: tuple[ToolCall, ...] = ()
    arrivals: tuple[int, ...] | None = None
    """Positions of the tool calls in the order in which a stream brings them; None: as they stand."""
    mixed: bool = False
    """Whether a stream brings reasoning, text and the calls piece by piece in turns, not one after the other."""
    null_text: bool = False
    """Whether the first event of a stream has null for the text that is still to come, not an empty one."""
    finish_reason: str | None = None
    """None: `tool_calls` when it calls tools, else `stop`. Others (`length`, `content_filter`) go as given."""
    usage: Usage | None = None
    """None: four characters a token, of the request body and of this reply."""
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _every_call_arrives(self) -> Self:
        if self.arrivals is not None and sorted(self.arrivals) != list(range(len(self.tool_calls))):
            raise ValueError('"arrivals" must name the position of every tool call once')
        return self

    @property
    def blank(self) -> bool:
        """Whether a client that drops reasoning would echo it as an empty assistant message."""
        return not self.text and not self.tool_calls

    @property
    def characters(self) -> int:
        """Characters of text, reasoning and tool arguments."""
        return len(self.text) + len(self.reasoning) + sum(len(call.arguments_json) for call in self.tool_calls)

    @property
    def final_reason(self) -> str:
        """The finish reason that is sent."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")
