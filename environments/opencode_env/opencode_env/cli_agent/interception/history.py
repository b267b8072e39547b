"""What of a request's history the model sampled itself: an agent's echo, found again in the trace's graph.

Invariant: a message is restored only where its agent's rules say that it is the echo of one answer that was sampled in
the same conversation, behind a history that is the same up to there; from the first message that is neither, the
request stays as it came.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rollout_sandbox.compat import index_nodes
from verifiers.v1.dialects import ChatDialect
from verifiers.v1.dialects.chat import message_to_wire, parse_message
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

from opencode_env.cli_agent.interception.conversations import AskedRequests, Forks, OwnNodes
from opencode_env.cli_agent.interception.request_rules import EchoRules
from opencode_env.cli_agent.interception.restored import (
    CALL_FIELDS,
    Issued,
    Message,
    Restored,
    Said,
    echo_on_wire,
    issued_calls,
    partial_before,
    said,
    sampled_on_wire,
    takes_back,
)

Input = SystemMessage | UserMessage | ToolMessage
_INPUTS: Mapping[object, type[Input]] = {"system": SystemMessage, "user": UserMessage, "tool": ToolMessage}


class History:
    """Finds the histories of one session's requests in its trace; tells `on_partial` of the partial answers in each."""

    def __init__(self, session: RolloutSession, rules: EchoRules, on_partial: Callable[[list[Said]], None]) -> None:
        self.rules = rules
        self._on_partial = on_partial
        self._session = session
        self._nodes: list[MessageNode] = session.trace.nodes
        self.requests = AskedRequests(self._nodes)
        self.forks = Forks(session.trace)
        self._conversation: str | None = None
        """Of the request whose history is looked for; that takes no time in which there could be another."""
        self._children: dict[int | None, list[int]] = {}
        self._linked = 0
        self._recognised: dict[int, tuple[int, tuple[str, ...]]] = {}
        """By node: hash of the echo that was recognised last, and the sampled ids of its calls."""
        self._valid: dict[int, bool] = {}
        index_nodes(session.trace, ChatDialect, OwnNodes(self._nodes))

    def restore(self, messages: Sequence[Message], tools: list[Tool], conversation: str | None) -> Restored:
        """The longest part of a request's history that the graph holds."""
        self._conversation = conversation
        self._link()
        found = Restored()
        while found.taken < len(messages):
            partial = self._partial_answers(found, messages, tools)
            if partial:
                found.taken += len(partial)
                found.partial += [said(one) for one in partial if one.get("role") == "assistant"]
            elif not self._step(found, messages, tools):
                break
        if found.partial:
            self._on_partial(found.partial)
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

    def _step(self, found: Restored, messages: Sequence[Message], tools: list[Tool]) -> bool:
        """Go on by what the next message stands for, if the graph holds it."""
        echo = messages[found.taken]
        if echo.get("role") == "assistant":
            if self._sampled(found, found.end, echo):
                return True
            # The model may have said the agent's own words: only at a request's end they are the agent's again.
            ends = found.taken == len(messages) - 1
            readings = (self._repeated, self._answer_behind_own_words)
            if any(read(found, echo) for read in (readings if ends else reversed(readings))):
                return True
            return self.rules.stands_in(echo) and self._left_out(found, echo)
        issued = found.result_of(echo) if echo.get("role") == "tool" else None
        if (node := self._input(found.end, echo, issued, tools)) is not None:
            found.add(node, found.result_on_wire(self._with_pinned(node, echo), issued))
            return True
        return echo.get("role") == "user" and self._left_out(found)

    def _sampled(self, found: Restored, parent: int | None, echo: Message) -> bool:
        for node in self._answers(parent):
            if (ids := self._recognise(node, echo)) is not None:
                self._take(found, node, echo, ids)
                return True
        return False

    def _repeated(self, found: Restored, echo: Message) -> bool:
        for node in self._children.get(found.end, ()):
            if not self._nodes[node].sampled and self._recognise(node, echo) is not None:
                found.add(node, found.answer_as_it_came(echo))
                return True
        return False

    def _answer_behind_own_words(self, found: Restored, echo: Message) -> bool:
        for node in self._own_words(found.end):
            trial = Restored()
            if self._sampled(trial, node, echo):
                found.add(node, self._words_on_wire(node), 0)
                found.add(trial.path[0], trial.wire[0])
                found.owed = trial.owed
                return True
        return False

    def _left_out(self, found: Restored, stand_in: Message | None = None) -> bool:
        """Go on behind an answer that the agent left out before what the user says, or put a message in place of."""
        for parent in (found.end, *self._own_words(found.end)):
            for node in self._answers(parent):
                answer = self._nodes[node].message
                if isinstance(answer, AssistantMessage) and self.rules.leaves_out(answer):
                    if parent is not None and parent != found.end:
                        found.add(parent, self._words_on_wire(parent), 0)
                    found.add(node, stand_in, 0 if stand_in is None else 1)
                    return True
        return False

    def _own_words(self, parent: int | None) -> Iterator[int]:
        for node in reversed(self._children.get(parent, ())):
            words, own = self._nodes[node].message, self._is_own(node) and not self._nodes[node].sampled
            if own and isinstance(words, AssistantMessage) and self.rules.says_once(words):
                yield node

    def _words_on_wire(self, node: int) -> Message:
        """The agent's own words as they were sent first."""
        return self.requests.ends.get(node) or message_to_wire(self.message(node))

    def _answers(self, parent: int | None) -> list[int]:
        """The conversation's sampled answers behind a node, the newest first."""
        children = reversed(self._children.get(parent, ()))
        return [node for node in children if self._nodes[node].sampled and self._is_own(node)]

    def _partial_answers(self, found: Restored, messages: Sequence[Message], tools: list[Tool]) -> list[Message]:
        """What comes next in a request and stands for nothing: parts of an answer that was asked for again, as long
        as without them more of the request is found."""
        if messages[found.taken].get("role") != "assistant" or self._conversation is None:
            return []
        places = (found.end, *self._own_words(found.end))
        again = [node for place in places for node in self._answers(place) if self.requests.again(node)]
        partial = partial_before(messages, found.taken, lambda message: self._is_echo(message, again)) if again else []
        if not partial or not self._are_surplus(found, partial, messages):
            return []
        with_them, without = found.ahead(), found.ahead(len(partial))
        for trial in (with_them, without):
            while trial.taken < len(messages) and self._step(trial, messages, tools):
                pass
        return partial if without.taken > with_them.taken else []

    def _are_surplus(self, found: Restored, partial: Sequence[Message], messages: Sequence[Message]) -> bool:
        """Whether each half stands in a request more often than the model said it in that conversation."""
        answers = [(said(one), one) for one in messages if one.get("role") == "assistant"]
        own = [node for node, kept in enumerate(self._nodes) if kept.sampled and self._is_own(node)]
        for half in {said(one) for one in partial if one.get("role") == "assistant"}:
            standing = [one for words, one in answers if words == half]
            # All of them say the same, and there can be thousands.
            spoken = sum(any(self._is_echo(one, [node]) for one in standing[:4]) for node in own)
            if len(standing) - found.partial.count(half) - spoken <= 0:
                return False
        return True

    def _is_own(self, node: int) -> bool:
        return self.requests.is_own(node, self._conversation)

    def _is_echo(self, message: Message, answers: Sequence[int]) -> bool:
        return any(self._recognise(node, message) is not None for node in answers)

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

    def _with_pinned(self, node: int, echo: Message) -> Message:
        """A message of a request, with the result that a hook put in the place of the tool's own, if one did."""
        message = self._nodes[node].message
        if isinstance(message, ToolMessage) and self._is_pinned(message):
            return {**echo, "content": message_to_wire(message)["content"]}
        return echo

    def _is_pinned(self, message: ToolMessage) -> bool:
        """Whether a hook put this result in the place of the tool's own."""
        pinned = self._session.pinned_tool_results
        return bool(pinned) and any(kept is message or kept == message for kept in pinned.values())

    def _recognise(self, node: int, echo: Message) -> tuple[str, ...] | None:
        """The ids of an answer's calls where a message is its echo, none where it is again one that was not sampled."""
        # Python's hash of texts is keyed by process, so nobody can make two echoes collide.
        key = hash(_texts(echo))
        known = self._recognised.get(node)
        if known is not None and known[0] == key:
            return known[1]
        message = self._nodes[node].message
        ids: Sequence[str] | None = None
        if self._nodes[node].sampled:
            assert isinstance(message, AssistantMessage)
            ids = self.rules.recognise(message, echo)
        elif message == parse_message(echo):
            ids = ()
        if ids is None:
            return None
        self._recognised[node] = key, tuple(ids)
        return tuple(ids)

    def _take(self, found: Restored, node: int, echo: Message, ids: Sequence[str]) -> None:
        sampled = self._nodes[node].message
        assert isinstance(sampled, AssistantMessage)
        if node not in self._valid:
            self._valid[node] = takes_back(sampled)
        valid = self._valid[node]
        found.owed = issued_calls(echo, ids, valid=valid)
        fields = self._session.trace.info.get(CALL_FIELDS, {}).get(str(node), ())
        found.add(node, sampled_on_wire(sampled, echo, fields) if valid else echo_on_wire(echo, found.owed))


def _texts(echo: Message) -> tuple[Any, ...]:
    """Everything that an echo says."""
    texts = [_text(value) for key, value in echo.items() if key != "tool_calls"]
    for call in echo.get("tool_calls") or ():
        texts += map(_text, (call["id"], call["function"]["name"], call["function"]["arguments"]))
    return (*echo, *texts)


def _text(value: Any) -> Any:
    """A text, or what a value of another type is known by, which no text is equal to."""
    return value if isinstance(value, str) else (repr(value),)


def _same_content(content: Any, echo: Any) -> bool:
    if isinstance(content, str) and isinstance(echo, str):
        return content == echo
    return bool(content == content_to_parts(echo))
