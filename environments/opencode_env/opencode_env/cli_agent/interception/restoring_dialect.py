"""A chat dialect that reads a request's history as the model sampled it.

verifiers' server hands the typed messages of `parse_request` to its graph, and with them to the renderer of a training
client; the request's own JSON goes to a chat endpoint. Invariant: the typed history holds what was sampled, character
for character, and the JSON stays valid chat protocol.
"""

from functools import cache
from typing import Any

from verifiers.v1.dialects import ChatDialect, Dialect
from verifiers.v1.dialects.base import RawRequest
from verifiers.v1.types import Message, Request, Tool

from opencode_env.cli_agent.interception.careful_dialect import reading
from opencode_env.cli_agent.interception.chat_protocol import Message as Wire
from opencode_env.cli_agent.interception.chat_protocol import call_on_wire
from opencode_env.cli_agent.interception.conversations import follow
from opencode_env.cli_agent.interception.history import History
from opencode_env.cli_agent.interception.restored import Restored


class _Restoring(ChatDialect):
    """A mixin before a class of chat dialects; one instance reads one request."""

    history: History
    wire: list[Wire | None]
    """The JSON of each typed message; None where a chat endpoint gets none."""

    def parse_request(self, body: RawRequest) -> Request:
        """The native request as the typed one, its history restored; the JSON goes on as an endpoint takes it.

        Raises:
            ValueError: it cannot be read.
        """
        with reading():
            messages = body.get("messages") or []
            tools = self._tools(body)
            restored = self.history.restore(messages, tools or [])
            sampled, sent = self._results(restored, messages[restored.taken :])
            tail = self._tail(restored, sampled)
        self.wire = [*restored.wire, *sent]
        body["messages"] = [message for message in self.wire if message is not None]
        self.history.asked.ends_with(body["messages"][-1])
        follow(restored.path)
        typed = [*(self.history.message(node) for node in restored.path), *tail]
        return Request.model_construct(messages=typed, tools=tools)

    def _tools(self, body: RawRequest) -> list[Tool] | None:
        """The tools of a request; an agent offers the same ones each time."""
        declared: RawRequest = {key: value for key, value in body.items() if key in ("tools", "n")}
        offered = self.history.offered
        if offered is None or offered[0] != declared:
            read: Request = super().parse_request(declared)
            offered = self.history.offered = declared, read.tools
        return offered[1]

    def _results(self, restored: Restored, messages: list[Wire]) -> tuple[list[Wire], list[Wire]]:
        """What is new in the request, with the ids of the calls as they were sampled, and as an endpoint gets them."""
        sampled, sent = list(messages), list(messages)
        for position, message in enumerate(messages):
            if message.get("role") == "assistant":
                sent[position] = restored.answer_as_it_came(message)
            elif message.get("role") == "tool" and (issued := restored.result_of(message)) is not None:
                sampled[position] = {**message, "tool_call_id": issued.sampled}
                sent[position] = restored.result_on_wire(message, issued)
        return sampled, sent

    def _tail(self, restored: Restored, messages: list[Wire]) -> list[Message]:
        """What is new in the request, typed; a result bears the name that was sampled with its call."""
        if not messages:
            return []
        issued = [call_on_wire(call, call.id) for call in self.history.last_calls(restored)]
        read: Request = super().parse_request({"messages": [{"role": "assistant", "tool_calls": issued}, *messages]})
        return list(read.messages[1:])

    def rewrite_request(self, body: RawRequest, before: Request, after: Request) -> None:
        """Patch rewritten messages into the JSON; what a chat endpoint does not get cannot be rewritten."""
        sent = [position for position, wire in enumerate(self.wire) if wire is not None]
        shown = [Request.model_construct(messages=[one.messages[i] for i in sent]) for one in (before, after)]
        super().rewrite_request(body, *shown)


@cache
def _restoring_class(own: type[Dialect[Any]]) -> type[_Restoring]:
    made = type(own.__name__, (_Restoring, own), {"__module__": own.__module__})
    assert issubclass(made, _Restoring)
    return made


def restoring(dialect: Dialect[Any], history: History) -> Dialect[Any]:
    """The dialect for one request of a session; still of its own type, by which verifiers' clients ask."""
    if not isinstance(dialect, ChatDialect):
        return dialect
    made = _restoring_class(type(dialect))()
    vars(made).update(vars(dialect))
    made.history = history
    return made
