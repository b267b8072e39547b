"""The wire format of one call, as verifiers' server and clients are given it: that is how a `Call` goes through them.

verifiers' server hands the typed messages of `parse_request` to its graph, and with them to the renderer of a training
client; they hold what was sampled, character for character. The request's own JSON goes to a chat endpoint.

These classes exist because verifiers' server parses whatever stands before it. What would end each method stands in its
comment; a `handle_request(request, dialect, call)` that took a body that was read would end them all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openai.types.chat import ChatCompletion
from verifiers.v1 import SamplingConfig
from verifiers.v1.dialects import AnthropicDialect, ChatDialect, Dialect, ResponsesDialect, StreamParser
from verifiers.v1.dialects.base import RawRequest
from verifiers.v1.types import Message, Request, Response, Tool

from opencode_env.cli_agent.interception.chat_answers import stream_parser, whole_answer
from opencode_env.cli_agent.interception.conversations import follow
from opencode_env.cli_agent.interception.gateway import Call
from opencode_env.cli_agent.interception.history import History, RestoredHistory, WireMessage, call_on_wire


class _Served(Dialect[Any]):
    """Stands before a class of dialects: one instance serves one call."""

    call: Call

    # Ends with a parameter of `handle_request` for a parsed body: it parses JSON, here that of `Call.server_body`.
    def apply_overrides(self, body: RawRequest, model: str, sampling: SamplingConfig) -> RawRequest:
        """The call's body with the rollout's model and sampling."""
        imposed: RawRequest = super().apply_overrides(self.call.body, model, sampling)  # type: ignore[safe-super]
        return imposed

    # Ends when verifiers answers 400 to what a dialect cannot read: of its 500 an agent thinks that it may pass.
    def parse_request(self, body: RawRequest) -> Request:
        with _reading():
            parsed: Request = super().parse_request(body)  # type: ignore[safe-super]
        return parsed

    # Ends when `RelayReply` may bring the answer that its events say.
    def stream_parser(self) -> StreamParser:
        """A parser of the call's answer, which is known when it was read before."""
        if self.call.answer is not None:
            return _AnswerRead(self.call.answer)
        own: StreamParser = super().stream_parser()  # type: ignore[safe-super]
        return own


class _AnswerRead(StreamParser):
    """Gives the answer that was read already."""

    def __init__(self, answer: Response) -> None:
        self._answer = answer

    def feed(self, raw: bytes) -> None: ...

    def finish(self) -> Response:
        return self._answer


class _ServedResponses(_Served, ResponsesDialect):
    pass


class _ServedMessages(_Served, AnthropicDialect):
    pass


class _ServedChat(_Served, ChatDialect):
    wire: list[WireMessage | None]
    """The JSON of each typed message; None where a chat endpoint gets none."""

    # Ends with a hook of the server between parsing and matching, for restored histories.
    def parse_request(self, body: RawRequest) -> Request:
        """The request, typed, its history restored. Changes `body["messages"]` to what goes upstream."""
        call, history = self.call, self.call.history
        if history is None:
            read = super().parse_request({**body, "tools": None})
            return Request.model_construct(messages=read.messages, tools=self._tools(body))
        with _reading():
            messages = body.get("messages") or []
            tools = self._tools(body)
            restored = history.restore(messages, tools or [], call.conversation)
            call.gateway.note_partial(restored.partial)
            sampled, sent = _results(restored, messages[restored.taken :])
            tail = self._tail(restored, sampled, history)
        self.wire = [*restored.wire, *sent]
        body["messages"] = [message for message in self.wire if message is not None]
        call.last_message = body["messages"][-1]
        follow(restored.path)
        typed = [*(history.message(node) for node in restored.path), *tail]
        return Request.model_construct(messages=typed, tools=tools)

    def _tools(self, body: RawRequest) -> list[Tool] | None:
        """The tools of a request; an agent offers the same ones each time."""
        offered, seat = self.call.gateway.offered, self.call.is_main
        declared: RawRequest = {key: value for key, value in body.items() if key in ("tools", "n")}
        if seat not in offered or offered[seat][0] != declared:
            offered[seat] = declared, super().parse_request(declared).tools
        return offered[seat][1]

    def _tail(self, restored: RestoredHistory, messages: list[WireMessage], history: History) -> list[Message]:
        """Return what is new in the request, typed; a result bears the name that was sampled with its call."""
        if not messages:
            return []
        calls = [call_on_wire(call, call.id) for call in history.last_calls(restored)]
        read = super().parse_request({"messages": [{"role": "assistant", "tool_calls": calls}, *messages]})
        return list(read.messages[1:])

    def rewrite_request(self, body: RawRequest, before: Request, after: Request) -> None:
        """Patch rewritten messages into the JSON; what a chat endpoint does not get cannot be rewritten."""
        if self.call.history is not None:
            sent = [position for position, wire in enumerate(self.wire) if wire is not None]
            kept = [[one.messages[position] for position in sent] for one in (before, after)]
            before, after = (Request.model_construct(messages=messages) for messages in kept)
        super().rewrite_request(body, before, after)

    # Ends when verifiers reads the forms that endpoints give a chat completion (see `chat_answers.py`).
    def validate_response(self, raw: dict[str, Any]) -> ChatCompletion:
        """Validate an answer, made one in OpenAI's form."""
        validated: ChatCompletion = super().validate_response(whole_answer(self.call, raw))
        return validated

    def stream_parser(self) -> StreamParser:
        return stream_parser(self.call) if self.call.answer is None else super().stream_parser()


_CLASSES: dict[type[Dialect[Any]], type[_Served]] = {
    ChatDialect: _ServedChat,
    ResponsesDialect: _ServedResponses,
    AnthropicDialect: _ServedMessages,
}


def served(call: Call) -> Dialect[Any]:
    """The dialect that serves a call; of the type of its own, by which verifiers' clients ask. Changes `reading`."""
    dialect = _CLASSES[type(call.dialect)]()
    dialect.call = call
    call.reading = dialect
    return dialect


def call_of(dialect: Dialect[Any]) -> Call:
    assert isinstance(dialect, _Served)
    return dialect.call


def _results(restored: RestoredHistory, messages: list[WireMessage]) -> tuple[list[WireMessage], list[WireMessage]]:
    """Return what is new in the request, with the ids of the calls as they were sampled, and as an endpoint gets
    them."""
    sampled, sent = list(messages), list(messages)
    for position, message in enumerate(messages):
        if message.get("role") == "assistant":
            sent[position] = restored.answer_as_it_came(message)
        elif message.get("role") == "tool" and (ids := restored.result_of(message)) is not None:
            sampled[position] = {**message, "tool_call_id": ids.sampled}
            sent[position] = restored.result_on_wire(message, ids)
    return sampled, sent


@contextmanager
def _reading() -> Iterator[None]:
    """Read a request: what cannot be read is the caller's mistake."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(f"the request cannot be read: {type(error).__name__}: {error}") from None
