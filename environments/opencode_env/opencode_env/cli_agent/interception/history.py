"""What of a request's history the model sampled itself: an agent's echo, found again in the trace's graph.

Invariant: a message is restored only where its agent's rules say that it is the echo of one sampled answer, behind a
history that is the same up to there; from the first message that is neither, the request stays as it came.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verifiers.v1.dialects.chat import parse_message
from verifiers.v1.graph import MessageNode
from verifiers.v1.session import RolloutSession
from verifiers.v1.types import (
    AssistantMessage,
    SystemMessage,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
    content_to_parts,
)

from opencode_env.cli_agent.interception.chat_protocol import (
    Issued,
    Message,
    echo_on_wire,
    issued_calls,
    sampled_on_wire,
    takes_back,
)
from opencode_env.cli_agent.interception.conversations import current_conversation
from opencode_env.cli_agent.interception.echo_rules import EchoRules

Input = SystemMessage | UserMessage | ToolMessage
_INPUTS: Mapping[object, type[Input]] = {"system": SystemMessage, "user": UserMessage, "tool": ToolMessage}


@dataclass
class Restored:
    """The part of a request's history that is in the graph."""

    path: list[int] = field(default_factory=list)
    """The nodes of that part."""
    wire: list[Message | None] = field(default_factory=list)
    """Each of them as a chat endpoint gets it; None where it gets nothing."""
    taken: int = 0
    """How many messages of the request they stand for."""
    owed: list[Issued] = field(default_factory=list)
    """Calls of the newest answer whose results have not come, in the agent's order."""

    @property
    def end(self) -> int | None:
        """The last node."""
        return self.path[-1] if self.path else None

    def result_of(self, echo: Message) -> Issued | None:
        """The call whose result a message is; of several that the agent gave one id, the first."""
        identity = echo.get("tool_call_id")
        return next((call for call in self.owed if call.echoed == identity), None)

    def answer_as_it_came(self, echo: Message) -> Message:
        """An answer for a chat endpoint that is nobody's echo; its calls are owed their results from here on."""
        self.owed = issued_calls(echo, None, valid=False)
        return echo_on_wire(echo, self.owed)

    def result_on_wire(self, echo: Message, issued: Issued | None) -> Message:
        """A message for a chat endpoint; a result is then no longer owed."""
        if issued is None:
            return echo
        self.owed.remove(issued)
        return echo if issued.wire == issued.echoed else {**echo, "tool_call_id": issued.wire}

    def add(self, node: int, wire: Message | None, taken: int = 1) -> None:
        """Go on to a node."""
        self.path.append(node)
        self.wire.append(wire)
        self.taken += taken


class History:
    """Finds the histories of one session's requests in its trace.

    Args:
        session: whose trace it is.
        rules: of its agent.
    """

    def __init__(self, session: RolloutSession, rules: EchoRules) -> None:
        self.rules = rules
        self.offered: tuple[dict[str, Any], list[Tool] | None] | None = None
        """The tools of the newest request, as they came and typed."""
        self._session = session
        self._nodes: list[MessageNode] = session.trace.nodes
        self._children: dict[int | None, list[int]] = {}
        self._linked = 0
        self._conversations: dict[int, str] = {}
        """By sampled node, where the request said it."""
        self._recognised: dict[int, tuple[int, tuple[str, ...]]] = {}
        """By node of an answer: hash of the echo that was recognised last, and the sampled ids of its calls."""
        self._valid: dict[int, bool] = {}

    def committed(self, node: int) -> None:
        """Note whose answer a new node is."""
        conversation = current_conversation()
        if conversation is not None:
            self._conversations[node] = conversation

    def restore(self, messages: Sequence[Message], tools: list[Tool]) -> Restored:
        """The longest part of a request's history that the graph holds."""
        self._link()
        found = Restored()
        while found.taken < len(messages):
            if not self._step(found, messages[found.taken], tools):
                break
        return found

    def message(self, node: int) -> AssistantMessage | Input:
        """What a node says."""
        return self._nodes[node].message

    def last_calls(self, found: Restored) -> list[ToolCall]:
        """The calls of the newest answer in that part."""
        messages = (self.message(node) for node in reversed(found.path))
        return next((one.tool_calls or [] for one in messages if isinstance(one, AssistantMessage)), [])

    def _link(self) -> None:
        """Take up the nodes that are new; nodes are never moved or taken away."""
        for number in range(self._linked, len(self._nodes)):
            self._children.setdefault(self._nodes[number].parent, []).append(number)
        self._linked = len(self._nodes)

    def _step(self, found: Restored, echo: Message, tools: list[Tool]) -> bool:
        """Go on by what one message stands for, if the graph holds it."""
        if echo.get("role") == "assistant":
            return self._answer(found, found.end, echo) or self._answer_behind_own_words(found, echo)
        issued = found.result_of(echo) if echo.get("role") == "tool" else None
        if (node := self._input(found.end, echo, issued, tools)) is not None:
            found.add(node, found.result_on_wire(echo, issued))
            return True
        return echo.get("role") == "user" and self._left_out(found)

    def _answer(self, found: Restored, parent: int | None, echo: Message) -> bool:
        for node in self._answers(parent):
            if (ids := self._recognise(node, echo)) is not None:
                self._take(found, node, echo, ids)
                return True
        for node in self._children.get(parent, ()):
            if not self._nodes[node].sampled and self._is_repeated(node, echo):
                found.add(node, found.answer_as_it_came(echo))
                return True
        return False

    def _answer_behind_own_words(self, found: Restored, echo: Message) -> bool:
        for node in self._own_words(found.end):
            trial = Restored()
            if self._answer(trial, node, echo):
                found.add(node, None, 0)
                found.add(trial.path[0], trial.wire[0])
                found.owed = trial.owed
                return True
        return False

    def _left_out(self, found: Restored) -> bool:
        """Go on behind an answer that the agent left out before what the user says now."""
        for parent in (found.end, *self._own_words(found.end)):
            for node in self._answers(parent):
                said = self._nodes[node].message
                if isinstance(said, AssistantMessage) and self.rules.leaves_out(said):
                    if parent is not None and parent != found.end:
                        found.add(parent, None, 0)
                    found.add(node, None, 0)
                    return True
        return False

    def _own_words(self, parent: int | None) -> Iterator[int]:
        for node in reversed(self._children.get(parent, ())):
            said = self._nodes[node].message
            if isinstance(said, AssistantMessage) and not self._nodes[node].sampled and self.rules.says_once(said):
                yield node

    def _answers(self, parent: int | None) -> list[int]:
        """The sampled answers behind a node: the conversation's own first, then the newest."""
        answers = [node for node in reversed(self._children.get(parent, ())) if self._nodes[node].sampled]
        conversation = current_conversation()
        if len(answers) > 1 and conversation is not None:
            answers.sort(key=lambda node: self._conversations.get(node) != conversation)
        return answers

    def _input(self, parent: int | None, echo: Message, issued: Issued | None, tools: list[Tool]) -> int | None:
        kind = _INPUTS.get(echo.get("role"))
        for node in reversed(self._children.get(parent, ())):
            message = self._nodes[node].message
            if isinstance(message, AssistantMessage) or type(message) is not kind:
                continue
            if isinstance(message, ToolMessage):
                if message.tool_call_id != (echo.get("tool_call_id", "") if issued is None else issued.sampled):
                    continue
                if self._is_pinned(message):
                    return node
            same = _same_content(message.content, echo.get("content"))
            if same and (parent is not None or self._nodes[node].tools == tools):
                return node
        return None

    def _is_pinned(self, message: ToolMessage) -> bool:
        """Whether a hook put this result in the place of the tool's own."""
        pinned = self._session.pinned_tool_results
        return bool(pinned) and any(kept is message or kept == message for kept in pinned.values())

    def _is_repeated(self, node: int, echo: Message) -> bool:
        """Whether a message that was not sampled is the same again."""
        key = hash(_texts(echo))
        if self._recognised.get(node, (None,))[0] != key:
            if self._nodes[node].message != parse_message(echo):
                return False
            self._recognised[node] = key, ()
        return True

    def _recognise(self, node: int, echo: Message) -> tuple[str, ...] | None:
        # Python's hash of texts is keyed by process, so nobody can make two echoes collide.
        key = hash(_texts(echo))
        known = self._recognised.get(node)
        if known is not None and known[0] == key:
            return known[1]
        message = self._nodes[node].message
        assert isinstance(message, AssistantMessage)
        ids = self.rules.recognise(message, echo)
        if ids is None:
            return None
        self._recognised[node] = key, tuple(ids)
        return self._recognised[node][1]

    def _take(self, found: Restored, node: int, echo: Message, ids: Sequence[str]) -> None:
        """Go on to an answer."""
        sampled = self._nodes[node].message
        assert isinstance(sampled, AssistantMessage)
        if node not in self._valid:
            self._valid[node] = takes_back(sampled)
        valid = self._valid[node]
        found.owed = issued_calls(echo, ids, valid=valid)
        found.add(node, sampled_on_wire(sampled, echo) if valid else echo_on_wire(echo, found.owed))


def _texts(echo: Message) -> tuple[str, ...]:
    """Everything that an echo says."""
    said = [value if isinstance(value, str) else repr(value) for key, value in echo.items() if key != "tool_calls"]
    for call in echo.get("tool_calls") or ():
        said += [call["id"], call["function"]["name"], call["function"]["arguments"]]
    return (*echo, *said)


def _same_content(content: Any, echo: Any) -> bool:
    """Whether content of a request is what a typed message holds."""
    if isinstance(content, str) and isinstance(echo, str):
        return content == echo
    same: bool = content == content_to_parts(echo)
    return same
