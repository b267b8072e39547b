"""A chat-completions request as a policy sees it.

Invariant: everything in it is derived from the request itself, so that retries, restarts and any number of concurrent
conversations need no state in the server.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field, JsonValue

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


class Message(_Wire):
    """One message of the history."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[EchoedCall, ...] | None = None
    tool_call_id: str | None = None
    """Of a tool's result: the call that it belongs to."""

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
    messages: tuple[Message, ...] = Field(min_length=1)
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

    def assistant_messages(self) -> Iterator[Message]:
        """The assistant messages, in order."""
        return (message for message in self.body.messages if message.role == "assistant")

    @cached_property
    def turn(self) -> int:
        """How many assistant messages with content came before: 0 for the first call of a conversation."""
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
