"""Which conversation of a rollout each model call belongs to, kept beside the trace's graph: which nodes are a
conversation's own, which answers were asked for again, where a conversation forks, and with what it began.

An agent that summarises a conversation goes on with the summary in the place of what stood before: what lies between
two summaries is a section. A request for a summary is one that our own count of the window has started.

verifiers tells conversations apart by their texts alone, so that two of the same texts flow into one.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from copy import deepcopy
from itertools import takewhile
from math import inf
from types import MappingProxyType
from typing import Any

from pydantic_core import from_json, to_json
from verifiers.v1.graph import MessageNode, message_hash
from verifiers.v1.trace import Trace
from verifiers.v1.types import (
    AssistantMessage,
    Message,
    ToolMessage,
)

from opencode_env.cli_agent.traces import lineage

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

RequestKey = tuple[str | None, bytes]
"""What a request is known by: the section of its conversation (None: it names none) and the identity of its body."""


class AnsweredRequests:
    """The requests of one session that have an answer or wait for one, and the nodes of each section of a conversation.

    A node is of a section when one of its answers stands on it or behind it; what the trace began with is every one's
    own.
    """

    def __init__(self, nodes: Sequence[MessageNode]) -> None:
        self._nodes = nodes
        self._seeded = len(nodes)
        self._own: dict[str | None, set[int]] = {}
        """By section, the nodes of its requests and answers."""
        self._requests: dict[int, RequestKey] = {}
        """By node of an answer, the request that it was given to."""
        self._answered: set[RequestKey] = set()
        self._times: dict[RequestKey, int] = {}
        """How often a request came."""
        self.ends: dict[int, dict[str, Any]] = {}
        """By node, the assistant messages with which requests ended, as a chat endpoint got them."""

    @contextmanager
    def serving(self, key: RequestKey) -> Iterator[None]:
        """Serve a request; of one that gets no answer nothing is kept."""
        self._times[key] = self._times.get(key, 0) + 1
        try:
            yield
        finally:
            if key not in self._answered:
                self._times[key] -= 1
                if not self._times[key]:
                    del self._times[key]

    def committed(self, node: int, key: RequestKey, end: dict[str, Any]) -> None:
        """Take up a new answer to a request that ended with this message, as a chat endpoint got it."""
        parent = self._nodes[node].parent
        self._requests[node] = key
        self._answered.add(key)
        if parent is not None and end.get("role") == "assistant":
            self.ends[parent] = end
        own = self._own.setdefault(key[0], set())
        own.update([*takewhile(lambda here: here not in own, lineage(self._nodes, node))])

    def is_own(self, node: int, section: str | None) -> bool:
        """Whether a node is of a section."""
        return node < self._seeded or node in self._own.get(section, ())

    def is_answer(self, node: int) -> bool:
        """Whether a node was given to a request of the agent's own program."""
        return node in self._requests

    def again(self, node: int) -> bool:
        """Whether the request that an answer was given to came more than once."""
        key = self._requests.get(node)
        return key is not None and self._times[key] > 1


NodeKey = tuple[int | None, str | None, str]

_path: ContextVar[tuple[Mapping[int | None, int], bool]] = ContextVar(
    "opencode_env_path", default=(MappingProxyType({}), False)
)
"""Of the call that is served here: the node that follows each node of its history, and whether no other answers do.

The only context variable of a call: verifiers' graph asks its index without saying for which call. A `prefix` argument
of `verifiers.v1.graph.prepare_turn`, kept on its `PendingTurn`, would end it, and `OwnNodes`.
"""


@contextmanager
def finding_own_nodes() -> Iterator[None]:
    """Let the graph find the nodes of the call that is served in the block, which `follow` names."""
    token = _path.set(({}, False))
    try:
        yield
    finally:
        _path.reset(token)


def follow(path: Sequence[int], *, alone: bool = False) -> None:
    """Let the graph find exactly these nodes for the call that is served here; `alone`: and no answer beside them."""
    _path.set((dict(zip([None, *path], path, strict=False)), alone))


class OwnNodes(dict[NodeKey, int]):
    """The graph's index of nodes by what they say, which prefers the nodes of the call's own history. What a program
    says in the words of the agent's own answers is context, and so is what a conversation that may be summarised says
    in the words of another one: no answer is of two sections."""

    def __init__(self, nodes: Sequence[MessageNode], is_answer: Callable[[int], bool]) -> None:
        super().__init__()
        self._nodes = nodes
        self._is_answer = is_answer

    def get(self, key: NodeKey, default: int | None = None) -> int | None:  # type: ignore[override]
        found = super().get(key, default)
        path, alone = _path.get()
        own = path.get(key[0])
        if own == found or found is None:
            return found
        if own is not None and message_hash(self._nodes[own].message) == key[2]:
            return own
        hidden = self._nodes[found].sampled if alone else not path and self._is_answer(found)
        return default if hidden else found


HISTORY_RECORD = "history"
"""Key in a trace's `info` with the number of forks and the first of them, and where a conversation was summarised the
`sections` and `summaries`, each in order; absent when there is none of these.

A section has the `conversation`, its `first` and `last` sampled node, the `tokens` that the engine counted in the last
one's prompt and answer, and the number of the `summary` that it begins with (None: the conversation's first); where it
forked also the ends of the branches that were `left`. A summary has the `conversation`, its `node`, whether it was
`planned` (else the endpoint had refused a call for a full window), and whether it was `used`: a section begins with it.
One that another seat's model made has no node (None); it has the `seat`, its `model` and `message`, and the tokens that
it was given and sampled (`input_tokens`, `completion_tokens`).
What was never summarised is in neither list.
"""

_BEFORE, _BEHIND = 20, 60
"""Characters that are shown around a difference."""


def history_forks(trace: Trace[Any, Any, Any]) -> float:
    return float(trace.info.get(HISTORY_RECORD, {}).get("forks", 0))


def compaction_metrics(trace: Trace[Any, Any, Any]) -> dict[str, float]:
    """Return how often a summary took the place of a history, the tokens of the longest section, and those of the
    summaries that another seat's model made, if one did."""
    record = trace.info.get(HISTORY_RECORD, {})
    tokens = [one["tokens"] for one in record.get("sections", ())]
    used = sum(one["used"] for one in record.get("summaries", ()))
    elsewhere = [one for one in record.get("summaries", ()) if "seat" in one]
    counted = {f"summary_{name}": float(sum(one[name] for one in elsewhere)) for name in _COUNTED if elsewhere}
    return {"compactions": float(used), "section_tokens_max": float(max(tokens, default=0)), **counted}


_COUNTED = ("input_tokens", "completion_tokens")


class Forks:
    """Notices the forks of one trace as its answers are committed: its branches beyond one for each section of a
    conversation. What only grows has none, nor have summaries, nor calls of the agent's programs, which name no
    conversation. Puts sections and summaries on the trace."""

    def __init__(self, trace: Trace[Any, Any, Any]) -> None:
        self._trace = trace
        self._leaves: dict[str, list[int]] = {}
        """The last answers of the branches of each conversation's newest section, the newest last."""
        self._sections: dict[str, dict[int | None, dict[str, Any]]] = {}
        """Those of each conversation in order, by the number of the summary that each begins with."""
        self.first: dict[str, int] = {}
        """The first answer of each conversation, unless it had a summary before it."""

    def summaries(self, conversation: str) -> Iterator[tuple[int, AssistantMessage]]:
        """Number and text of each summary of a conversation, the newest first."""
        made = self._trace.info.get(HISTORY_RECORD, {}).get("summaries", ())
        for number in reversed(range(len(made))):
            if made[number]["conversation"] == conversation:
                node, said = made[number]["node"], made[number].get("message")
                yield number, AssistantMessage.model_validate(self._trace.nodes[node].message if said is None else said)

    def before(self, conversation: str, summary: int) -> Iterator[list[int]]:
        """Yield the newest answer of each section of a conversation that began before a summary, the newest section
        first, and the nodes that it stands on."""
        for begun, one in reversed(self._known(conversation).items()):
            if begun is None or begun < summary:
                yield [*lineage(self._trace.nodes, one["last"])]

    def summarised(
        self, node: int | None, conversation: str, *, planned: bool, said: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Take up a summary of a conversation, which is planned or follows a refusal. Without a node it is another
        seat's, and was `said` there."""
        record = self._trace.info.setdefault(HISTORY_RECORD, {"forks": 0, "first": []})
        sections, first = record.setdefault("sections", []), self._known(conversation).get(None)
        if first is not None and not any(one is first for one in sections):
            sections.append(first)
        summary = {"conversation": conversation, "node": node, "planned": planned, "used": False, **said}
        record.setdefault("summaries", []).append(summary)

    def committed(self, node: int, conversation: str | None, section: int | None = None, tokens: int = 0) -> None:
        """Take up an answer of a conversation, in the section that begins with a summary of that number; `tokens` are
        those of its prompt and of itself."""
        if conversation is None:
            return
        if section is None:
            self.first.setdefault(conversation, node)
        leaves = self._leaves.setdefault(conversation, [])
        self._note_section(node, conversation, section, tokens)
        before = lineage(self._trace.nodes, self._trace.nodes[node].parent) if leaves else ()
        extended = next((here for here in before if here in leaves), None)
        if extended is not None:
            leaves.remove(extended)
        elif leaves:
            self._note(conversation, leaves[-1], node)
        leaves.append(node)

    def _note_section(self, node: int, conversation: str, summary: int | None, tokens: int) -> None:
        """Note which section an answer is of; the first of one closes the branches of the one before. None begins with
        an older summary than the newest one does."""
        known, newest = self._known(conversation), self._newest(conversation)
        found = known.get(summary, newest)
        begins = summary is not None and (newest is None or newest["summary"] is None or newest["summary"] < summary)
        if found is None or begins:
            sampled = [here for here in lineage(self._trace.nodes, node) if self._trace.nodes[here].sampled]
            first = node if begins else sampled[-1]
            found = {"conversation": conversation, "first": first, "summary": summary, "tokens": tokens}
            known[summary] = found
        if begins:
            record = self._trace.info[HISTORY_RECORD]
            record["summaries"][summary]["used"] = True
            record["sections"].append(found)
            self._leaves[conversation].clear()
        elif (last := found.get("last")) is not None and last not in lineage(self._trace.nodes, node):
            found.setdefault("left", []).append(last)
        found.update(last=node, tokens=tokens or found["tokens"])

    def _known(self, conversation: str) -> dict[int | None, dict[str, Any]]:
        if conversation not in self._sections:  # the trace may have begun with what was played before
            recorded = self._trace.info.get(HISTORY_RECORD, {}).get("sections", ())
            own = {one["summary"]: one for one in recorded if one["conversation"] == conversation}
            self._sections[conversation] = own
        return self._sections[conversation]

    def _newest(self, conversation: str) -> dict[str, Any] | None:
        return next(reversed(self._known(conversation).values()), None)

    def known(self) -> dict[str, Any]:
        """Return what is known of every conversation, for a trace that goes on from here to `resume`."""
        sections = [one for own in self._sections.values() for one in own.values()]
        return deepcopy({"first": self.first, "leaves": self._leaves, "sections": sections})

    def resume(self, known: Mapping[str, Any]) -> None:
        """Take up what was known of every conversation that was played before; the record on the trace is theirs."""
        self.first |= known["first"]
        self._leaves |= known["leaves"]
        for section in known["sections"]:
            self._known(section["conversation"]).setdefault(section["summary"], section)

    def resumed(self, node: int, conversation: str, tokens: int) -> None:
        """Take up the newest answer of a conversation that was played before, with the tokens of its prompt and of
        itself."""
        newest = self._newest(conversation)
        self.committed(node, conversation, None if newest is None else newest["summary"], tokens)

    def last(self, conversation: str) -> int | None:
        """The node of the newest answer of a conversation."""
        leaves = self._leaves.get(conversation)
        return leaves[-1] if leaves else None

    def _note(self, conversation: str, old: int, new: int) -> None:
        record = self._trace.info.setdefault(HISTORY_RECORD, {"forks": 0, "first": []})
        record["forks"] += 1
        if len(record["first"]) >= 10:
            return
        nodes = self._trace.nodes
        found = first_difference(nodes, *([*lineage(nodes, end)][::-1] for end in (old, new)))
        record["first"].append({"conversation": conversation, **found})
        told = "the history of a conversation changed: id=%s conversation=%s message %s from turn %s on: %s"
        logger.warning(told, self._trace.id, conversation, found["message"], found["turn"], found["how"])


def first_difference(nodes: Sequence[MessageNode], old: Sequence[int], new: Sequence[int]) -> dict[str, Any]:
    """Return what makes the second of two paths a branch: number of the message, of the turn whose request held it
    first (both from 1), its role, and how it differs."""
    shared = _shared(old, new)
    before = nodes[old[shared]] if shared < len(old) else None
    after = nodes[new[shared]] if shared < len(new) else None
    turn = 1 + sum(nodes[node].sampled for node in new[:shared])
    role = after.message.role if after is not None else None
    return {"message": shared + 1, "turn": turn, "role": role, "how": _how(before, after)}


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many entries, from the first on, are the same."""
    same = (position for position, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(same, min(len(one), len(other)))


def _how(before: MessageNode | None, after: MessageNode | None) -> str:
    if before is None or after is None:
        return "the conversation ends here"
    if before.sampled and after.sampled:
        return "the same request was answered again"
    was, now = before.message, after.message
    if was.role != now.role:
        return f"a message of role {now.role} stands where one of role {was.role} stood"
    if before.parent is None and before.tools != after.tools:
        return "other tools are offered"
    if isinstance(was, ToolMessage) and isinstance(now, ToolMessage) and was.tool_call_id != now.tool_call_id:
        return f"the result belongs to call {now.tool_call_id!r}, not to {was.tool_call_id!r}"
    parts = zip(_parts(was).items(), _parts(now).values(), strict=True)
    different = (f"{name}: {_texts_where_they_differ(old, new)}" for (name, old), new in parts if old != new)
    return next(different, "the same text was given other tokens")


def _parts(message: Message) -> dict[str, str]:
    """Return what a message says, by field."""
    if not isinstance(message, AssistantMessage):
        return {"content": message.content if isinstance(message.content, str) else repr(message.content)}
    texts = {"content": message.content or "", "reasoning_content": message.reasoning_content or ""}
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls or []]
    return {**texts, "tool_calls": json.dumps(calls)}


def _texts_where_they_differ(old: str, new: str) -> str:
    start = max(0, _shared(old, new) - _BEFORE)
    shown = [repr(text[start : start + _BEFORE + _BEHIND]) for text in (old, new)]
    return f"{shown[1]} stands where {shown[0]} stood (from character {start})"


_BEGINNINGS = 100
_IN_A_ROW = 3
"""Summaries of one conversation without an answer between them: a refusal for a full window takes no turn, so that
an agent which keeps its window full could have them made without end."""


class Summaries:
    """Tells which of one rollout's requests for a summary follow from what the endpoint counted in the window. An agent
    can bring its own program to ask for one at any time, by its store for instance; what it asks then is an ordinary
    call of the conversation."""

    def __init__(self, agent: str | None) -> None:
        self.agent = agent
        self.at: float | None = None
        """Tokens of a prompt and its answer from which on the agent's own program asks; inf: only when a call was
        refused for a full window; None: never."""
        self.prompt: Callable[[str], bool] = lambda text: True
        """Whether a system prompt is the one with which it asks."""
        self.trains = "all"
        """What is to train of a conversation that was summarised, as `Trained` names it."""
        self.used: dict[str, float] = {}
        """By conversation, the tokens of its newest answer and of what that was given to; inf: its newest call was
        refused for a full window."""
        self.refused_bytes: dict[str, int] = {}
        """By conversation, those of its newest call that was refused for a full window, whose tokens nobody counted."""
        self._due: dict[str, tuple[str, int]] = {}
        """By conversation, the newest request for a summary that was due: its key, and a hash of what it says."""
        self._in_a_row: Counter[str] = Counter()
        """By conversation, the summaries since its newest answer."""
        self._served: dict[str, list[str]] = {}
        """By conversation, the keys of those that are served."""

    def asked(self, body: Mapping[str, Any], conversation: str, key: str, until_end: ExitStack) -> bool:
        """Whether a request of the agent's own program, which is served until then, asks for a summary that is due:
        once more, but not beside another one of the conversation."""
        if self.at is None or key.partition(":")[2] != self.agent or body.get("tools"):
            return False
        orders = [message for message in body["messages"] if message.get("role") in ("system", "developer")]
        if orders != _system(body) or not self.prompt("\n".join(str(message.get("content")) for message in orders)):
            return False
        served, request = self._served.setdefault(conversation, []), (key, hash(to_json(body["messages"])))
        full = self.used.get(conversation, 0) >= self.at and self._in_a_row[conversation] < _IN_A_ROW
        if full and {*served} <= {key}:
            self._due[conversation] = request
        if self._due.get(conversation) != request:
            return False
        served.append(key)
        until_end.callback(served.remove, key)
        return True

    def planned(self, conversation: str) -> bool:
        """Whether the summary that is due follows no refusal."""
        return self.used.get(conversation, 0) != inf

    def answered(self, conversation: str, tokens: int, *, summary: bool) -> None:
        """Take up how full an answer leaves a conversation's window, which is empty behind a summary."""
        self.used[conversation] = 0 if summary else tokens
        self._in_a_row[conversation] = self._in_a_row[conversation] + 1 if summary else 0

    def refused(self, conversation: str, size: int) -> None:
        """Take up that a call of a conversation, of so many bytes, was refused for a full window."""
        self.used[conversation] = inf
        self.refused_bytes[conversation] = size


class FixedPrompts:
    """Holds one rollout's conversations to the system messages and the tools that they began with, whatever the agent
    made of the files that its own program reads, in this run of it or for a later one. Calls without the program's mark
    neither set a beginning nor are held to one; `side_agents` have a prompt and tools of their own in any."""

    def __init__(self, side_agents: frozenset[str]) -> None:
        self._side_agents = side_agents
        self.first: str | None = None
        """The conversation of the first marked call, which comes before any program of the agent can run."""
        self._known: dict[str, dict[str, tuple[bytes, bytes]]] = {}
        """By conversation and agent the system messages and the tools, as JSON."""
        self._beginnings: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
        """Those that conversations have, each once; what would be one too many begins as the rollout did, a due
        summary excepted."""

    def hold(self, body: dict[str, Any], conversation: str, agent: str, *, summarises: bool = False) -> bool:
        """Give the body of a chat request that bears the own program's mark, in place, what the conversation that it
        names began with, where that `agent` of the program's speaks; returns whether it had others. One that
        `summarises`, as is due, is never given another conversation's."""
        self.first = self.first or conversation
        begun, found = self._known.setdefault(conversation, {}), (to_json(_system(body)), to_json(body.get("tools")))
        if agent not in begun and agent not in self._side_agents:
            agent = next((name for name in begun if name not in self._side_agents), agent)
        if agent not in begun:
            begun[agent] = self._begins(found, further=summarises)
        kept = begun[agent]
        if kept == found:
            return False
        body["messages"][: len(_system(body))] = from_json(kept[0])
        tools = from_json(kept[1])
        body.pop("tools", None)
        if tools is not None:
            body["tools"] = tools
        return True

    def _begins(self, found: tuple[bytes, bytes], *, further: bool) -> tuple[bytes, bytes]:
        if further or len(self._beginnings) < _BEGINNINGS:
            self._beginnings.setdefault(found, found)
        return self._beginnings.get(found) or next(iter(self._beginnings.values()))


def _system(body: Mapping[str, Any]) -> list[Any]:
    return list(takewhile(lambda message: message.get("role") == "system", body["messages"]))
