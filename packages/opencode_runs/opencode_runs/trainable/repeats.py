"""What stands twice: a history that is told again; a trace, a message, an answer or a call, which would weigh double.

An agent whose histories are restored has its forks noted as they come about; of any other agent the graph alone tells.
The same words may well be sampled twice; what is known of when they were is then different.
"""

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from opencode_runs.traces.record import TokenNode, TraceRecord

_LONG = 8
"""Characters of an id that somebody drew."""
_LONG_ANSWER = 40
"""Characters from which on an answer tells itself, whatever it answered: a question may come back edited, or not."""


def have_siblings(nodes: Sequence[TokenNode]) -> bool:
    """Whether two messages hang on the same one, or on none; mostly all of them are one line."""
    return len({node.parent for node in nodes}) < len(nodes)


def structural_forks(nodes: Sequence[TokenNode]) -> int:
    """Branches that leave another one behind a turn of the model."""
    if not have_siblings(nodes):
        return 0
    children = Counter(node.parent for node in nodes if node.parent is not None)
    behind = _behind_answers(nodes)
    return sum(count - 1 for number, count in children.items() if number in behind)


def told_again(nodes: Sequence[TokenNode]) -> list[int]:
    """Where conversations begin anew with what was said before: the first such message of each.

    Another system message, other tools or another template give another root, or another first message. What follows it
    is not sampled any more: an answer that the model gave, or the result of a tool, stands there as a part of the
    request. Examples in a prompt come before any answer, also before one that says the same, and answers to the same
    question are those of the model. Conversations that come one after the other with one first message (behind a
    system message: and one question), given in other tokens, are one as well.
    """
    behind = _behind_answers(nodes)
    first = min(behind, default=len(nodes))
    if all(number in behind for number in range(first, len(nodes))):
        return []  # Nothing was given once an answer was.
    said: set[Hashable] = set()
    examples: set[Hashable] = set()
    again: list[int] = []
    repeating: set[int] = set()
    anew = _begun_anew(nodes)
    for number, node in enumerate(nodes):
        given = number not in behind
        if given and node.parent in repeating:
            repeating.add(number)
        elif given and (number in anew or not said.isdisjoint(_sayings(nodes, node))):
            repeating.add(number)
            again.append(number)
        elif given:
            examples.update(_sayings(nodes, node))
        else:
            said.update(saying for saying in _sayings(nodes, node) if saying not in examples)
    return again


def _begun_anew(nodes: Sequence[TokenNode]) -> set[int]:
    """Roots that say what an earlier one did, in other tokens or with other tools, once nothing went on behind that."""
    root_of: list[int] = []
    for number, node in enumerate(nodes):
        root_of.append(number if node.parent is None else root_of[node.parent])
    ends = {root: number for number, root in enumerate(root_of)}
    next_of = {node.parent: node.message for node in reversed(nodes)}
    first: dict[Hashable, int] = {}
    anew: set[int] = set()
    for root in sorted(ends):
        if nodes[root].message is not None:
            # One system message may begin any number of conversations.
            asked = next_of.get(root) if nodes[root].role == "system" else None
            earlier = first.setdefault(hashable([nodes[root].message, asked]), root)
            if earlier != root and ends[earlier] < root and not _same(nodes[earlier], nodes[root]):
                anew.add(root)
    return anew


def _same(one: TokenNode, other: TokenNode) -> bool:
    return one.token_ids == other.token_ids and one.tools == other.tools


def _behind_answers(nodes: Sequence[TokenNode]) -> set[int]:
    behind: set[int] = set()
    for number, node in enumerate(nodes):
        if node.sampled or node.parent in behind:
            behind.add(number)
    return behind


def _sayings(nodes: Sequence[TokenNode], node: TokenNode) -> Iterator[Hashable]:
    """An answer with what it answers, or the result of a tool with its call, by what any agent keeps of them."""
    if not isinstance(node.message, dict) or node.parent is None or not 0 <= node.parent < len(nodes):
        return
    message, before = node.message, nodes[node.parent].message
    if node.role == "assistant" and isinstance(before, dict):
        asked = hashable([before.get("role"), before.get("content")])
        if text := _text(message.get("content")):
            yield hashable(["said", asked, text])
        if len(text) >= _LONG_ANSWER:
            yield hashable(["said", text])
        calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
        yield from (hashable(["call", call["id"]]) for call in calls if _is_own(call.get("id")))
        if calls:
            yield hashable(["called", asked, [[call.get("name"), _arguments(call.get("arguments"))] for call in calls]])
    elif node.role == "tool" and _is_own(message.get("tool_call_id")):
        yield hashable(["result", message["tool_call_id"]])
    elif node.role == "tool" and message.get("content"):
        yield hashable(["result", message.get("tool_call_id"), message.get("content")])


def _text(content: object) -> str:
    """What an answer says, as text or in parts, without the thought before it."""
    parts = content if isinstance(content, list) else [{"text": content}]
    said = "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
    return said.rpartition("</think>")[2].strip()


def _is_own(identity: object) -> bool:
    """Whether an id is of one call only, and not its number in an answer."""
    return isinstance(identity, str) and len(identity) >= _LONG and not identity.removeprefix("call_").isdigit()


def _arguments(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def canonical(value: object) -> str:
    """A value as text that is the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True)


def hashable(value: object) -> Hashable:
    """A value of JSON as one that can be hashed, and is the same for equal values: a tenth of the cost of its text."""
    if type(value) is str or value is None:
        return value
    if isinstance(value, dict):
        parts = [(name, one if type(one) is str else hashable(one)) for name, one in sorted(value.items())]
        return ("table", *parts)
    if isinstance(value, list | tuple):
        return tuple(value) if {*map(type, value)} <= {int, float} else tuple(map(hashable, value))
    return (type(value).__name__, repr(value))


_END = 100
"""Characters or tokens of a long answer's ends, by which it is told from others of its moment."""


@dataclass(slots=True)
class TraceIdentity:
    """What tells a trace and its answers from all others."""

    trace: int | None
    """None where it has no id."""
    answers: set[int]
    within: str
    """What of it stands twice in itself; empty if nothing does."""

    @classmethod
    def of(cls, trace: TraceRecord) -> "TraceIdentity":
        answers = [_moment(node) for node in trace.nodes if node.sampled and node.timestamp is not None]
        own, problem = set(answers), _within(trace)
        if not problem and len(own) < len(answers):
            problem = "an answer of one moment stands in it twice"
        return cls(hash(trace.id) if trace.id else None, own, problem)


@dataclass
class Repeats:
    """Finds traces and answers that were seen before, in whatever run; remembers a number of each."""

    _traces: set[int] = field(default_factory=set)
    _answers: set[int] = field(default_factory=set)

    def found(self, marks: TraceIdentity) -> str:
        """What of a trace stands twice, in itself or since an earlier one; empty if nothing does."""
        problem = marks.within
        if not problem and marks.trace in self._traces:
            problem = "another trace has the same id"
        if not problem and not marks.answers.isdisjoint(self._answers):
            problem = "an answer of one moment stands in another trace too"
        if marks.trace is not None:
            self._traces.add(marks.trace)
        self._answers |= marks.answers
        return problem


def _within(trace: TraceRecord) -> str:
    if have_siblings(trace.nodes):
        children = Counter(node.parent for node in trace.nodes)
        siblings = ((number, _said(node)) for number, node in enumerate(trace.nodes) if children[node.parent] > 1)
        if twice := _twice(siblings):
            return f"message nodes {twice[0]} and {twice[1]} are the same"
    answered = ((number, call) for number, call in enumerate(trace.calls) if call.node is not None and call.end)
    if twice := _twice((number, (call.start, call.end)) for number, call in answered):
        return f"calls {twice[0]} and {twice[1]} are the same"
    return ""


def _twice(entries: Iterable[tuple[int, Hashable]]) -> tuple[int, int] | None:
    first: dict[Hashable, int] = {}
    for number, entry in entries:
        if (earlier := first.setdefault(entry, number)) != number:
            return earlier, number
    return None


def _said(node: TokenNode) -> Hashable:
    """What tells a message from its siblings; the graph keeps a message of a request once."""
    when = node.timestamp if node.sampled else None
    return hashable([node.parent, node.sampled, when, node.message, node.token_ids, node.logprobs, node.tools])


def _moment(node: TokenNode) -> int:
    """What no other answer has: when it was, and what it is, of which its ends tell enough."""
    message, tokens = node.message, node.token_ids
    text = message.get("content") if type(message) is dict else None
    said: Hashable
    if type(text) is str and len(text) > 2 * _END:
        rest = {name: value for name, value in message.items() if name != "content"}
        said = (len(text), text[:_END], text[-_END:], hashable(rest))
    else:
        said = hashable(message)
    ends = (len(tokens), *tokens[:_END], *tokens[-_END:]) if tokens else None
    return hash((node.timestamp, said, ends))
