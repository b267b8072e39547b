"""A recorded rollout that can be played again: its answers to a fresh agent, and where what that asks first differs.

An answer is found from its request alone: the conversation, by its first user message, and how many answers stand in
it. So sub calls and parallel calls play as well, and a request that is sent again gets its answer again.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from opencode_env.scripted_model.policy import ChatMessage, ChatRequest, Reply, ToolCall, Usage

_BEFORE, _BEHIND = 20, 60
"""Characters that are shown around a difference."""


class _Recorded(BaseModel):
    """A part of a saved trace: what it does not name is left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class RecordedNode(_Recorded):
    """One message of a trace's graph."""

    parent: int | None = None
    message: dict[str, Any]
    tools: list[dict[str, Any]] | None = None
    """What was offered, on the first message of a conversation."""

    @property
    def role(self) -> str:
        return str(self.message.get("role"))

    @cached_property
    def as_sent(self) -> ChatMessage:
        """The message as a request holds it."""
        calls = [{"id": call["id"], "function": call} for call in self.message.get("tool_calls") or ()]
        return ChatMessage.model_validate({**self.message, "tool_calls": calls or None})


class RecordedUsage(_Recorded):
    """Tokens of a call, as the endpoint counted them."""

    prompt_tokens: int = 0
    cached_input_tokens: int | None = None
    completion_tokens: int = 0


class RecordedCall(_Recorded):
    """One model call; `node` is its answer, None where there is none."""

    node: int | None = None
    finish_reason: str | None = None
    usage: RecordedUsage | None = None


class RecordedTrace(_Recorded):
    """What of a trace is needed to play it."""

    id: str = ""
    seat: str = Field("agent", validation_alias=AliasPath("agent", "name"))
    nodes: tuple[RecordedNode, ...] = ()
    calls: tuple[RecordedCall, ...] = ()
    opencode: str | None = Field(None, validation_alias=AliasPath("info", "agent", "version"))
    branch: dict[str, Any] | None = Field(None, validation_alias=AliasPath("info", "branch"))
    """The kept turn that it goes on from; it does not play from its beginning."""
    rewards: dict[str, dict[str, Any] | None] = Field(default_factory=dict)

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    def before(self, node: int) -> list[int]:
        """The messages before one, from the conversation's first on."""
        path: list[int] = []
        here = self.nodes[node].parent
        while here is not None:
            path.append(here)
            here = self.nodes[here].parent
        return path[::-1]

    @property
    def reward(self) -> float | None:
        """The weighted sum of its rewards; None where one is missing."""
        total = 0.0
        for one in self.rewards.values():
            if one is None or one.get("score") is None:
                return None
            total += one["score"] * one.get("weight", 1.0)
        return total if self.rewards else None


class Difference(BaseModel):
    """Where a request parts from the recorded one."""

    model_config = ConfigDict(frozen=True)

    seat: str
    turn: int
    """Of its conversation, from 1."""
    message: int | None = None
    """From 1; None where it is not a message."""
    role: str | None = None
    how: str

    def __str__(self) -> str:
        place = "" if self.message is None else f", message {self.message} ({self.role})"
        return f"turn {self.turn}{'' if self.seat == 'agent' else f' of {self.seat}'}{place}: {self.how}"


class _Answer:
    """A recorded answer with the request that it belongs to."""

    def __init__(self, trace: RecordedTrace, call: RecordedCall, node: int) -> None:
        self.seat, self._call = trace.seat, call
        self.message = trace.nodes[node].as_sent
        self.request = [trace.nodes[one] for one in trace.before(node)]

    @property
    def key(self) -> tuple[str, int]:
        """What finds it: the conversation, and how many answers come before it."""
        first = next((one.as_sent.text for one in self.request if one.role == "user"), "")
        return first, sum(one.role == "assistant" for one in self.request)

    def reply(self) -> Reply:
        """The answer, to be sent again."""
        calls = tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in self.message.tool_calls or ()
        )
        usage = None
        if (used := self._call.usage) is not None:
            sent = used.prompt_tokens + (used.cached_input_tokens or 0)
            usage = Usage(prompt_tokens=sent, completion_tokens=used.completion_tokens)
        return Reply(
            text=self.message.text,
            reasoning=self.message.reasoning_content or "",
            tool_calls=calls,
            finish_reason=self._call.finish_reason,
            usage=usage,
        )

    def difference(self, request: ChatRequest, known: set[int]) -> Difference | None:
        """What a request has in another way than the recorded one; None for nothing that is not `known`: ids of the
        recorded messages that were different in an earlier request; what is found goes there."""
        turn = self.key[1] + 1
        old, new = [one.as_sent for one in self.request], request.body.messages
        other = (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if _content(a) != _content(b))
        shared = next((at for at in other if id(self.request[at]) not in known), None)
        if shared is None and len(old) != len(new):
            shared = min(len(old), len(new))
        if shared is not None:
            known.update(id(one) for one in self.request[shared : shared + 1])
            called = {call.id: call.function.name for one in old for call in one.tool_calls or ()}
            how = _how(old[shared:], new[shared:], called)
            role = new[shared].role if shared < len(new) else old[shared].role
            return Difference(seat=self.seat, turn=turn, message=shared + 1, role=role, how=how)
        offered = self.request[0].tools if self.request else None
        tools = _other_tools(offered or [], request)
        return Difference(seat=self.seat, turn=turn, how=tools) if tools else None


class Cassette(_Recorded):
    """One rollout in one file: what was answered and asked, its task, and how its environment was configured."""

    format: Literal[1] = 1
    task: dict[str, Any]
    """As the episode has it: `type`, `key`, `hash` and `data`."""
    config: dict[str, Any]
    """`env`, `model` and `sampling` of the run's configuration."""
    traces: tuple[RecordedTrace, ...]
    """Of all seats."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read one.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a cassette.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise ValueError(f"{path} is not a cassette: {where}: {first['msg']}") from error

    def save(self, path: Path) -> None:
        """Write it.

        Raises:
            OSError: it cannot be written.
        """
        path.write_text(self.model_dump_json(indent=1, exclude_defaults=True) + "\n")

    @property
    def main(self) -> RecordedTrace | None:
        """The agent's own trace."""
        return next((trace for trace in self.traces if trace.seat == "agent"), None)

    def answers(self) -> Iterator[_Answer]:
        """The recorded answers, in the order in which they came."""
        for trace in self.traces:
            for call in trace.calls:
                if call.node is not None:
                    yield _Answer(trace, call, call.node)

    def tool_results(self) -> dict[str, list[Any]]:
        """The contents of the agent's tool results, by call id in their order."""
        found: dict[str, list[Any]] = {}
        for node in () if self.main is None else self.main.nodes:
            if node.role == "tool":
                found.setdefault(node.message["tool_call_id"], []).append(node.message["content"])
        return found


class CassettePolicy:
    """Plays a cassette, and keeps where the requests differ from the recorded ones. After a difference the recorded
    answers go on by their number, so that later ones show what follows from it."""

    def __init__(self, cassette: Cassette) -> None:
        self._waiting: dict[tuple[str, int], list[_Answer]] = {}
        self._main: dict[int, _Answer] = {}
        """The answers of the agent's first conversation, for one that begins in another way."""
        self._played: dict[str, Reply] = {}
        self.asked = 0
        """Requests that were answered, each once."""
        self.differences: list[Difference] = []
        """In the order in which the requests came; a message that differs is named once."""
        self._known: set[int] = set()
        for answer in cassette.answers():
            if answer.seat == "agent":
                self._main.setdefault(answer.key[1], answer)
            self._waiting.setdefault(answer.key, []).append(answer)

    def __call__(self, request: ChatRequest, /) -> Reply:
        if request.call_key not in self._played:
            self.asked += 1
            self._played[request.call_key] = self._answer(request)
        return self._played[request.call_key]

    def _answer(self, request: ChatRequest) -> Reply:
        number = sum(1 for _ in request.assistant_messages())
        waiting = self._waiting.get((request.prompt, number))
        answer = waiting.pop(0) if waiting else None
        if answer is None and not any(first == request.prompt for first, _ in self._waiting):
            answer = self._main.pop(number, None)
        if answer is None:
            how = "the agent asks once more; the recording holds no such request"
            self.differences.append(Difference(seat="agent", turn=number + 1, how=how))
            return Reply(text="I am a scripted model; the recording holds no answer to this request.")
        self._main = {place: one for place, one in self._main.items() if one is not answer}
        if (found := answer.difference(request, self._known)) is not None:
            self.differences.append(found)
        return answer.reply()

    def all_differences(self) -> list[Difference]:
        """The differences, and behind them what was never asked; for when the agent has ended."""
        left = [one for waiting in self._waiting.values() for one in waiting]
        if self.differences or not left:
            return list(self.differences)
        first = min(left, key=lambda one: one.key[1])
        how = f"the agent did not ask again; {len(left)} recorded answers were not played"
        return [Difference(seat=first.seat, turn=first.key[1] + 1, how=how)]


def _content(message: ChatMessage) -> tuple[Any, ...]:
    """Everything of a message that counts."""
    kinds = [part.type for part in message.content] if isinstance(message.content, tuple) else []
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    # A picture's own bytes are not compared: the data set's or the tool's text beside it names it.
    pictures = [kind for kind in kinds if kind != "text"]
    return message.role, message.text, message.reasoning_content or "", calls, message.tool_call_id, pictures


def _how(old: Sequence[ChatMessage], new: Sequence[ChatMessage], tools: dict[str, str]) -> str:
    if not new:
        return f"the request ends here; the recorded one goes on with a message of role {old[0].role}"
    if not old:
        return f"the recorded request ends here; this one goes on with a message of role {new[0].role}"
    was, now = old[0], new[0]
    if was.role != now.role:
        return f"a message of role {now.role} stands where one of role {was.role} stood"
    about = f"result of {tools.get(now.tool_call_id or '', 'a tool')}: " if now.role == "tool" else ""
    for one, other in zip(_content(was)[1:], _content(now)[1:], strict=True):
        if one != other:
            return about + _texts(*(value if isinstance(value, str) else repr(value) for value in (one, other)))
    raise AssertionError("the messages are the same")


def _other_tools(recorded: list[dict[str, Any]], request: ChatRequest) -> str | None:
    old = {tool["name"]: (tool.get("description") or "", tool.get("parameters") or {}) for tool in recorded}
    functions = [tool.function for tool in request.body.tools or ()]
    new = {one.name: (one.description, dict(one.parameters or {})) for one in functions}
    for name in {**old, **new}:
        if name not in new:
            return f"the tool {name} is not offered any more"
        if name not in old:
            return f"the tool {name} was not offered"
        if old[name] != new[name]:
            return f"the tool {name} is described in another way: {_texts(repr(old[name]), repr(new[name]))}"
    return None


def _texts(old: str, new: str) -> str:
    """Both texts around the first place where they differ."""
    same = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - _BEFORE)
    was, now = (repr(text[start : start + _BEFORE + _BEHIND]) for text in (old, new))
    return f"{now} stands where {was} stood (from character {start})"
