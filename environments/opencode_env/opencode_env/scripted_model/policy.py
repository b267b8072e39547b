"""What asks the scripted model, what it says, and what maps the one to the other: a policy.

A `ChatRequest` is what a policy sees. Everything in it is derived from the request itself, and the step of a script is
found from it alone, so that retries, restarts and any number of concurrent conversations need no state in the server.

A `Reply` is what is said, before it is put on the wire, with the faults that are made in it on purpose. A `Fault`
carries only the settings that its kind uses, so a misspelt script is refused when it is read.

A file holds a list of steps (replies), one script `{"steps": [...], "match": ..., "model": ...}`, or several,
`{"scripts": [...]}`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import from_json

SESSION_HEADER = "x-session-id"
"""OpenCode sends its session id in it, verifiers (which replaces it) the rollout's trace id."""


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ContentPart(_Wire):
    """One part of a message's content; parts other than text have no `text`."""

    type: str
    text: str = ""


class CalledFunction(_Wire):
    """Name and arguments of a tool call in the history."""

    name: str
    arguments: str


class EchoedCall(_Wire):
    """A tool call in the history."""

    id: str
    function: CalledFunction


class ChatMessage(_Wire):
    """One message of the history."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[EchoedCall, ...] | None = None
    tool_call_id: str | None = None
    """The call that a tool's result belongs to."""

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, tuple):
            return "".join(part.text for part in self.content)
        return self.content or ""

    @property
    def blank(self) -> bool:
        """Whether it says nothing: OpenCode keeps such a message after a stream that was cut in mid-text."""
        return not (self.text or self.tool_calls or self.reasoning_content)


class _Function(_Wire):
    name: str
    description: str = ""
    parameters: dict[str, JsonValue] | None = None


class _Tool(_Wire):
    function: _Function


class _StreamOptions(_Wire):
    include_usage: bool = False


class ChatBody(_Wire):
    """The part of a request body that the scripted model reads."""

    model: str = ""
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    tools: tuple[_Tool, ...] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None


@dataclass(frozen=True)
class ChatRequest:
    """One request: its body, its headers (lower-case names) and its size in characters."""

    body: ChatBody
    headers: Mapping[str, str]
    characters: int

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return self.body.model

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that were offered."""
        return tuple(tool.function.name for tool in self.body.tools or ())

    @property
    def tool_parameters(self) -> Mapping[str, Mapping[str, JsonValue]]:
        """The JSON schema of the parameters of each tool that was offered, by the tool's name."""
        return {tool.function.name: tool.function.parameters or {} for tool in self.body.tools or ()}

    @property
    def include_usage(self) -> bool:
        """Whether a stream shall end with a usage chunk."""
        return self.body.stream_options is not None and self.body.stream_options.include_usage

    @property
    def session_id(self) -> str | None:
        """The session header, if there is one."""
        return self.headers.get(SESSION_HEADER)

    @property
    def user_texts(self) -> tuple[str, ...]:
        """Texts of the user messages, in order."""
        return tuple(message.text for message in self.body.messages if message.role == "user")

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of all messages, in order."""
        return tuple(message.text for message in self.body.messages)

    @property
    def prompt(self) -> str:
        """Text of the first user message, or the empty string."""
        return next(iter(self.user_texts), "")

    def assistant_messages(self) -> Iterator[ChatMessage]:
        """The assistant messages, in order."""
        return (message for message in self.body.messages if message.role == "assistant")

    @cached_property
    def turn(self) -> int:
        """Return how many assistant messages with content came before: 0 for the first call of a conversation."""
        return sum(not message.blank for message in self.assistant_messages())

    @cached_property
    def conversation(self) -> str:
        """Key of the conversation: a hash of the session header and the first user message."""
        return _digest(self.session_id or "", self.prompt)

    @cached_property
    def call_key(self) -> str:
        """Key of this call: equal for a retry, which sends the same conversation with the same messages. Blank
        assistant messages do not count: OpenCode adds one when it retries a stream that was cut. Two clients without a
        session header that send the same messages cannot be told apart."""
        spoken = (m for m in self.body.messages if not (m.role == "assistant" and m.blank))
        return _digest(self.conversation, *(message.model_dump_json() for message in spoken))


def _digest(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


MODEL_ID = "scripted-model"
"""The one model id it lists and answers with, whatever model a request asked for."""

LABEL = "opencode-env scripted model, not a language model"
"""`owned_by` in the model list, `system_fingerprint` of every answer, first words of the start-up line."""

CHARACTERS_PER_TOKEN = 4
"""The scripted model's whole tokenizer; used for usage and for the context window."""


def tokens_of(characters: int) -> int:
    """The token count the scripted model claims for so many characters (rounded up)."""
    return -(-characters // CHARACTERS_PER_TOKEN)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Frozen):
    """One tool call; a string as `arguments` is sent as it is, so that it can be malformed JSON."""

    name: str
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    id: str | None = None
    """None: made from the conversation, the turn and the position, the same in every run."""

    @property
    def arguments_json(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Usage(_Frozen):
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


class Fault(_Frozen):
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


class Reply(_Frozen):
    """One assistant message; all fields empty is the empty answer of a model that said nothing."""

    text: str = ""
    reasoning: str = ""
    reasoning_key: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    """The name under which the reasoning is sent."""
    tool_calls: tuple[ToolCall, ...] = ()
    arrivals: tuple[int, ...] | None = None
    """Positions of the tool calls in the order in which a stream brings them; None: as they stand."""
    mixed: bool = False
    """Whether a stream mixes the pieces of reasoning, text and calls, and does not bring one after the other."""
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


class Policy(Protocol):
    """Any callable that answers a request; called once per request, on the event loop: it must not block."""

    def __call__(self, request: ChatRequest, /) -> Reply: ...


class FaultyPolicy:
    """Another policy's replies with faults on chosen turns of every conversation (the first turn is 0)."""

    def __init__(self, policy: Policy, faults: Mapping[int, tuple[Fault, ...]]) -> None:
        self.policy = policy
        self.faults = dict(faults)

    def __call__(self, request: ChatRequest, /) -> Reply:
        reply = self.policy(request)
        added = self.faults.get(request.turn, ())
        return reply.model_copy(update={"faults": reply.faults + added}) if added else reply


def step_of(steps: Sequence[Reply], history: Iterable[ChatMessage]) -> int:
    """The index of the step that answers this history; `len(steps)` or more when all were played. An assistant message
    is one played step. A blank one is a played step only where the script has a blank reply; elsewhere it is what a
    client kept of a stream that was cut, and that step is played again."""
    step = 0
    for message in history:
        if message.blank and step < len(steps) and not steps[step].blank:
            continue
        step += 1
    return step


class Script(BaseModel):
    """A conversation from the model's side: one reply per turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: tuple[Reply, ...] = Field(min_length=1)
    match: str = ""
    """Plays in conversations with a user message that contains this text; empty: in all."""
    model: str | None = None
    """Plays for requests that ask for this model; None: for all."""
    repeat_last: bool = False
    """Whether the last step is played for ever, for an agent that never comes to an end."""

    def reply(self, request: ChatRequest) -> Reply:
        """The reply at the request's turn; after the last step a plain text that says so."""
        step = step_of(self.steps, request.assistant_messages())
        if self.repeat_last:
            step = min(step, len(self.steps) - 1)
        if step < len(self.steps):
            return self.steps[step]
        return Reply(text=f"I am a scripted model; my script has ended after {len(self.steps)} steps.")


class _Scripts(BaseModel):
    model_config = ConfigDict(extra="forbid")

    scripts: tuple[Script, ...] = Field(min_length=1)


class ScriptPolicy:
    """Plays the first script that matches a request."""

    def __init__(self, *scripts: Script) -> None:
        if not scripts:
            raise ValueError("a ScriptPolicy needs at least one Script")
        self.scripts = scripts

    @classmethod
    def of(cls, *steps: Reply) -> Self:
        """One script for every conversation."""
        return cls(Script(steps=steps))

    @classmethod
    def load(cls, path: Path) -> Self:
        """The scripts of a JSON file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not JSON, or not a list of steps, a script, or a set of scripts.
        """
        try:
            content = from_json(path.read_bytes())
            if isinstance(content, dict) and "scripts" in content:
                return cls(*_Scripts.model_validate(content).scripts)
            return cls(Script.model_validate({"steps": content} if isinstance(content, list) else content))
        except ValueError as error:
            raise ValueError(f"{path} is not a script: {error}") from error

    def __call__(self, request: ChatRequest, /) -> Reply:
        for script in self.scripts:
            fits = script.model is None or script.model == request.model
            if fits and (not script.match or any(script.match in text for text in request.user_texts)):
                return script.reply(request)
        return Reply(text="I am a scripted model; none of my scripts matches this conversation.")
