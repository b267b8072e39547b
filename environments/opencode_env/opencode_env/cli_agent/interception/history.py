"""What of a request's history the model sampled itself: an agent's echo, found again in the trace's graph.

A request is read message by message: `History.restore` finds the longest part in the graph, `RestoredHistory` says
how that part goes to a chat endpoint. A message is restored only where its agent's rules say that it is the echo of one
answer that was sampled in the same conversation, behind a history that is the same up to there; from the first message
that is neither, the request stays as it came. A harness whose agent rewrites what its model sampled says it with an
`echo_rules()` on its configuration; without one nothing is restored, and every rewriting is a new branch of the trace.
Whatever was sampled, the messages that leave here are valid: a strict endpoint answers what it does not take with a 400
that a policy could then provoke at will.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_core import from_json
from rollout_sandbox.compat import index_nodes
from rollout_sandbox.surrogates import whole_text
from verifiers.v1.configs.harness import HarnessConfig
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

from opencode_env.cli_agent.interception.conversations import AnsweredRequests, Forks, OwnNodes

WireMessage = dict[str, Any]
"""A chat message as it stands in a request."""

Wire = Mapping[str, Any]
"""The same, for whoever only reads it."""


class EchoRules(Protocol):
    """Tells what one agent makes of its model's answers when it sends them back."""

    @property
    def conversation_header(self) -> str:
        """The request header that names the conversation of a call."""

    @property
    def side_agents(self) -> frozenset[str]:
        """Return who speaks in a conversation with a system prompt and tools of their own, as its calls' keys name
        them."""

    @property
    def summary_agent(self) -> str | None:
        """Return who of them is asked for the summary with which a conversation goes on when its window is full; None:
        the agent makes none."""

    def recognise(self, sampled: AssistantMessage, echo: Wire) -> Sequence[str] | None:
        """The sampled ids of the echo's calls, in their order there; None when it is not an echo of that answer."""

    def leaves_out(self, sampled: AssistantMessage) -> bool:
        """Whether an answer is missing from the history."""

    def stands_in(self, echo: Wire) -> bool:
        """Whether a message is what the agent may put in the place of an answer that it leaves out."""

    def says_once(self, message: AssistantMessage) -> bool:
        """Whether these are the agent's own words at the end of one request, missing from the next."""

    def behind_question(self, messages: Sequence[Wire]) -> int | None:
        """Return the position of the summary in a request that begins with one of what stood there before; None where
        it begins with none."""


def echo_rules(config: HarnessConfig | None) -> EchoRules | None:
    """The rules of a configuration's agent, if there are any."""
    own = getattr(config, "echo_rules", None)
    found: EchoRules | None = None if own is None else own()
    return found


CALL_FIELDS = "call_fields"
"""Key in a trace's `info`: by node, for each call of an answer what the endpoint said of it beside OpenAI's fields and
wants back, such as the signature of a thought; absent without any."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_ID = "call_without_id"
"""Stands for the empty id, which a model may give to one call of an answer."""


@dataclass(frozen=True)
class CallIds:
    """The ids of one call of an answer in the three forms of a history."""

    echoed: str
    """The agent's."""
    sampled: str
    wire: str
    """For a chat endpoint."""


def call_ids(echo: WireMessage, sampled: Sequence[str] | None, *, valid: bool) -> list[CallIds]:
    """The ids of the calls of an echo, an agent's form of an answer, in its order; no two get one id on the wire.

    Args:
        sampled: the ids that they had; None: those that they have.
        valid: whether an endpoint `takes_back` them.
    """
    given = [call["id"] for call in echo.get("tool_calls") or ()]
    found: dict[str, CallIds] = {}
    for own, identity in zip(given, given if sampled is None else sampled, strict=True):
        wanted = wire = (identity if valid else own) or _NO_ID
        number = 1
        while wire in found:
            number += 1
            wire = f"{wanted}_{number}"
        found[wire] = CallIds(own, identity, wire)
    return list(found.values())


def takes_back(sampled: AssistantMessage) -> bool:
    """Whether an answer is valid in a request: calls have one id each, names of tools, and objects for arguments."""
    calls, said = sampled.tool_calls or [], sampled.content or sampled.reasoning_content
    if len({call.id for call in calls}) != len(calls):
        return False
    named = all(call.type == "function" and _NAME.fullmatch(call.name) for call in calls)
    return named and bool(calls or said) and all(_is_object(call.arguments) for call in calls)


def _is_object(arguments: str) -> bool:
    """Whether a text is a JSON object by the strictest of the readers: no NaN, no lone surrogate, not too deep."""
    try:
        return isinstance(from_json(arguments, allow_inf_nan=False), dict)
    except ValueError:
        return False


def sampled_on_wire(sampled: AssistantMessage, echo: WireMessage, fields: Sequence[dict[str, Any]] = ()) -> WireMessage:
    """An answer that an endpoint `takes_back`: with the words that were sampled, and otherwise as its agent sent it.
    `fields` are for each call those that the endpoint gave beside OpenAI's: some want them back, and few agents keep
    them."""
    wire: WireMessage = dict(echo)
    if sampled.tool_calls:
        wire["tool_calls"] = [call_on_wire(call, call.id or _NO_ID) for call in sampled.tool_calls]
        for call, more in zip(wire["tool_calls"], fields, strict=False):
            call.update(more)
    if sampled.provider_state:
        wire["reasoning_details"] = sampled.provider_state
    return wire


def echo_on_wire(echo: WireMessage, calls: Sequence[CallIds]) -> WireMessage:
    """An answer in its agent's form; arguments that even that leaves no object are one with their text in it."""
    if not calls:
        return echo
    pairs = zip(echo["tool_calls"], calls, strict=True)
    return {**echo, "tool_calls": [_echoed_call(call, ids.wire) for call, ids in pairs]}


def _echoed_call(call: WireMessage, identity: str) -> WireMessage:
    function = call["function"]
    if not _is_object(function["arguments"]):
        function = {**function, "arguments": json.dumps({"arguments": whole_text(function["arguments"])})}
    return {**call, "id": identity, "function": function}


def call_on_wire(call: ToolCall, identity: str) -> dict[str, Any]:
    """A function call as it stands in a request."""
    return {"id": identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


MessageKey = tuple[str, tuple[str, ...]]
"""What an assistant message is known by: its text and the ids of its calls, which agents leave as they are."""


def message_key(message: Wire) -> MessageKey:
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    ids = [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return (content if isinstance(content, str) else "", tuple(ids))


@dataclass
class RestoredHistory:
    """The part of a request's history that is in the graph."""

    path: list[int] = field(default_factory=list)
    """The nodes of that part."""
    wire: list[WireMessage | None] = field(default_factory=list)
    """Each of them as a chat endpoint gets it; None where it gets nothing."""
    taken: int = 0
    """How many messages of the request they stand for."""
    owed: list[CallIds] = field(default_factory=list)
    """Calls of the newest answer whose results have not come, in the agent's order."""
    partial: list[MessageKey] = field(default_factory=list)
    """What the parts of answers said that stand for nothing."""

    @property
    def end(self) -> int | None:
        """The last node of that part; None while it has none."""
        return self.path[-1] if self.path else None

    def result_of(self, echo: WireMessage) -> CallIds | None:
        """The call whose result a message is; of several that the agent gave one id, the first."""
        identity = echo.get("tool_call_id")
        return next((call for call in self.owed if call.echoed == identity), None)

    def answer_as_it_came(self, echo: WireMessage) -> WireMessage:
        """An answer for a chat endpoint that echoes no sampled one; its calls are owed their results from here on."""
        self.owed = call_ids(echo, None, valid=False)
        return echo_on_wire(echo, self.owed)

    def result_on_wire(self, echo: WireMessage, ids: CallIds | None) -> WireMessage:
        """A message for a chat endpoint; a result is then no longer owed."""
        if ids is None:
            return echo
        self.owed.remove(ids)
        return echo if ids.wire == ids.echoed else {**echo, "tool_call_id": ids.wire}

    def add(self, node: int, wire: WireMessage | None, taken: int = 1) -> None:
        """Go on to a node."""
        self.path.append(node)
        self.wire.append(wire)
        self.taken += taken

    def ahead(self, skipped: int = 0) -> "RestoredHistory":
        """A search that goes on from here, behind so many more messages, and leaves this one as it is."""
        return RestoredHistory(path=self.path[-1:], taken=self.taken + skipped, owed=list(self.owed))


_MOST_PARTIAL = 16
"""Partial answers before one whole that are looked for: more than an agent asks again."""


def partial_before(
    messages: Sequence[WireMessage], first: int, is_whole: Callable[[WireMessage], bool]
) -> list[WireMessage]:
    """The messages from position `first`, an assistant message, on that come before one that `is_whole`, the echo of a
    whole answer, each a beginning of it or a result of its calls; none when there is no such answer.

    A partial answer is what an agent kept of an answer that reached it in part before the whole of it reached it again.
    Sent back with the history, it is an assistant message that the model never said there, and would fork the trace.
    """
    partial: list[MessageKey] = []
    for position in range(first, len(messages)):
        message = messages[position]
        if message.get("role") == "assistant":
            own = message_key(message)
            if partial and all(_begins(part, own) for part in partial) and is_whole(message):
                return list(messages[first:position])
            partial.append(own)
            if len(partial) > _MOST_PARTIAL:
                break
        elif message.get("role") != "tool" or not any(message.get("tool_call_id") in ids for _, ids in partial):
            break
    return []


def _begins(part: MessageKey, whole: MessageKey) -> bool:
    (text, ids), (whole_text, whole_ids) = part, whole
    return whole_text.startswith(text) and whole_ids[: len(ids)] == ids


Input = SystemMessage | UserMessage | ToolMessage
_INPUTS: Mapping[object, type[Input]] = {"system": SystemMessage, "user": UserMessage, "tool": ToolMessage}


class History:
    """Finds the histories of one session's requests in its trace."""

    def __init__(self, session: RolloutSession, rules: EchoRules) -> None:
        self.rules = rules
        self._session = session
        self.trace = session.trace
        self._nodes: list[MessageNode] = session.trace.nodes
        self.requests = AnsweredRequests(self._nodes)
        self.forks = Forks(session.trace)
        self._section: str | None = None
        """Of the request whose history is looked for; that takes no time in which there could be another."""
        self._children: dict[int | None, list[int]] = {}
        self._linked = 0
        self._recognised: dict[int, tuple[int, tuple[str, ...]]] = {}
        """By node: hash of the echo that was recognised last, and the sampled ids of its calls."""
        self._valid: dict[int, bool] = {}
        index_nodes(session.trace, ChatDialect, OwnNodes(self._nodes, self.requests.is_answer))

    def section(self, body: Mapping[str, Any], conversation: str) -> int | None:
        """The number of the summary with which a request of a conversation begins, the newest of several; None where it
        begins as the conversation did, or is of another format."""
        made = [*self.forks.summaries(conversation)]
        messages = body.get("messages") or ()
        place = self.rules.behind_question(messages) if made else None
        if place is None:
            return None
        echo = messages[place] if place < len(messages) else {"role": "user"}
        found = (number for number, summary in made if self._begins_with(summary, number, conversation, echo))
        return next(found, None)

    def _begins_with(self, summary: AssistantMessage, number: int, conversation: str, echo: WireMessage) -> bool:
        """Whether the message behind the question for a summary echoes it, or where it was empty what was kept of the
        section before: an answer that stood there, or what the user said."""
        said = echo.get("role") == "assistant"
        if said and self.rules.recognise(summary, echo) is not None:
            return True
        if not self.rules.leaves_out(summary):
            return False
        return self._was_kept(conversation, number, echo) if said else echo.get("role") == "user"

    def _was_kept(self, conversation: str, summary: int, echo: WireMessage) -> bool:
        """Whether a message echoes an answer that stood in the section before a summary: sampled there, or a copy of
        one that was sampled earlier."""
        earlier = self.forks.before(conversation, summary)
        section = next(earlier, [])
        stood = [node for node in section if isinstance(self.message(node), AssistantMessage)]
        sampled = (node for path in (section, *earlier) for node in path if self._nodes[node].sampled)
        return self._is_echo(echo, stood) and self._is_echo(echo, sampled)

    def restore(self, messages: Sequence[WireMessage], tools: list[Tool], section: str | None) -> RestoredHistory:
        """The longest part of the history of a section's request that the graph holds."""
        self._section = section
        for number in range(self._linked, len(self._nodes)):  # nodes are never moved or taken away
            self._children.setdefault(self._nodes[number].parent, []).append(number)
        self._linked = len(self._nodes)
        found = RestoredHistory()
        while found.taken < len(messages):
            partial = self._partial_answers(found, messages, tools)
            if partial:
                found.taken += len(partial)
                found.partial += [message_key(one) for one in partial if one.get("role") == "assistant"]
            elif not self._step(found, messages, tools):
                break
        return found

    def message(self, node: int) -> AssistantMessage | Input:
        """The typed message that a node holds."""
        return self._nodes[node].message

    def last_calls(self, found: RestoredHistory) -> list[ToolCall]:
        """The calls of the newest answer in that part."""
        messages = (self.message(node) for node in reversed(found.path))
        return next((one.tool_calls or [] for one in messages if isinstance(one, AssistantMessage)), [])

    def _step(self, found: RestoredHistory, messages: Sequence[WireMessage], tools: list[Tool]) -> bool:
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
        ids = found.result_of(echo) if echo.get("role") == "tool" else None
        if (node := self._input(found.end, echo, ids, tools)) is not None:
            found.add(node, found.result_on_wire(self._with_pinned(node, echo), ids))
            return True
        return echo.get("role") == "user" and self._left_out(found)

    def _sampled(self, found: RestoredHistory, parent: int | None, echo: WireMessage) -> bool:
        for node in self._answers(parent):
            if (ids := self._recognise(node, echo)) is not None:
                self._take(found, node, echo, ids)
                return True
        return False

    def _repeated(self, found: RestoredHistory, echo: WireMessage) -> bool:
        for node in self._children.get(found.end, ()):
            if not self._nodes[node].sampled and self._recognise(node, echo) is not None:
                found.add(node, found.answer_as_it_came(echo))
                return True
        return False

    def _answer_behind_own_words(self, found: RestoredHistory, echo: WireMessage) -> bool:
        for node in self._own_words(found.end):
            trial = RestoredHistory()
            if self._sampled(trial, node, echo):
                found.add(node, self._words_on_wire(node), 0)
                found.add(trial.path[0], trial.wire[0])
                found.owed = trial.owed
                return True
        return False

    def _left_out(self, found: RestoredHistory, stand_in: WireMessage | None = None) -> bool:
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

    def _words_on_wire(self, node: int) -> WireMessage:
        """The agent's own words as they were sent first."""
        return self.requests.ends.get(node) or message_to_wire(self.message(node))

    def _answers(self, parent: int | None) -> list[int]:
        """The conversation's sampled answers behind a node, the newest first."""
        children = reversed(self._children.get(parent, ()))
        return [node for node in children if self._nodes[node].sampled and self._is_own(node)]

    def _partial_answers(
        self, found: RestoredHistory, messages: Sequence[WireMessage], tools: list[Tool]
    ) -> list[WireMessage]:
        """Return what comes next in a request and stands for nothing: parts of an answer that was asked for again, as
        long as without them more of the request is found."""
        if messages[found.taken].get("role") != "assistant" or self._section is None:
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

    def _are_surplus(
        self, found: RestoredHistory, partial: Sequence[WireMessage], messages: Sequence[WireMessage]
    ) -> bool:
        """Whether each part stands in a request more often than the model said it in that conversation."""
        answers = [(message_key(one), one) for one in messages if one.get("role") == "assistant"]
        own = [node for node, kept in enumerate(self._nodes) if kept.sampled and self._is_own(node)]
        for part in {message_key(one) for one in partial if one.get("role") == "assistant"}:
            standing = [one for words, one in answers if words == part]
            # All of them say the same, and there can be thousands.
            spoken = sum(any(self._is_echo(one, [node]) for one in standing[:4]) for node in own)
            if len(standing) - found.partial.count(part) - spoken <= 0:
                return False
        return True

    def _is_own(self, node: int) -> bool:
        return self.requests.is_own(node, self._section)

    def _is_echo(self, message: WireMessage, answers: Iterable[int]) -> bool:
        return any(self._recognise(node, message) is not None for node in answers)

    def _input(self, parent: int | None, echo: WireMessage, ids: CallIds | None, tools: list[Tool]) -> int | None:
        kind = _INPUTS.get(echo.get("role"))
        for node in reversed(self._children.get(parent, ())):
            message = self._nodes[node].message
            if isinstance(message, AssistantMessage) or type(message) is not kind:
                continue
            if isinstance(message, ToolMessage):
                if message.tool_call_id != (echo.get("tool_call_id", "") if ids is None else ids.sampled):
                    continue
                if self._is_pinned(message):
                    return node
            same = _same_content(message.content, echo.get("content"))
            if same and (parent is not None or self._nodes[node].tools == tools):
                return node
        return None

    def _with_pinned(self, node: int, echo: WireMessage) -> WireMessage:
        """A message of a request, with the result that a hook put in the place of the tool's own, if one did."""
        message = self._nodes[node].message
        if isinstance(message, ToolMessage) and self._is_pinned(message):
            return {**echo, "content": message_to_wire(message)["content"]}
        return echo

    def _is_pinned(self, message: ToolMessage) -> bool:
        pinned = self._session.pinned_tool_results
        return bool(pinned) and any(kept is message or kept == message for kept in pinned.values())

    def _recognise(self, node: int, echo: WireMessage) -> tuple[str, ...] | None:
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

    def _take(self, found: RestoredHistory, node: int, echo: WireMessage, ids: Sequence[str]) -> None:
        sampled = self._nodes[node].message
        assert isinstance(sampled, AssistantMessage)
        if node not in self._valid:
            self._valid[node] = takes_back(sampled)
        valid = self._valid[node]
        found.owed = call_ids(echo, ids, valid=valid)
        fields = self._session.trace.info.get(CALL_FIELDS, {}).get(str(node), ())
        found.add(node, sampled_on_wire(sampled, echo, fields) if valid else echo_on_wire(echo, found.owed))


def _texts(echo: WireMessage) -> tuple[Any, ...]:
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
