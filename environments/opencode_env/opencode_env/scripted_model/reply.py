"""What the scripted model says to one request, before it is put on the wire.

Invariant: a `Reply` is immutable and complete, so that one reply can answer any number of requests.
"""

import json
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from opencode_env.scripted_model.fault import Fault

MODEL_ID = "scripted-model"
"""The one model id it lists and answers with, whatever model a request asked for."""

LABEL = "opencode-env scripted model, not a language model"
"""`owned_by` in the model list, `system_fingerprint` of every answer, first words of the start-up line."""

CHARACTERS_PER_TOKEN = 4
"""The scripted model's whole tokenizer; used for usage and for the context window."""


def tokens_of(characters: int) -> int:
    """The token count the scripted model claims for so many characters (rounded up)."""
    return -(-characters // CHARACTERS_PER_TOKEN)


class ToolCall(BaseModel):
    """One tool call; a string as `arguments` is sent as it is, so that it can be malformed JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    id: str | None = None
    """None: made from the conversation, the turn and the position, the same in every run."""

    @property
    def arguments_json(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Usage(BaseModel):
    """Token counts to report instead of the counted ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


class Reply(BaseModel):
    """One assistant message; all fields empty is the empty answer of a model that said nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
