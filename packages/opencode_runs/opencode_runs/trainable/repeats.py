"""What stands twice: a trace, a message, an answer (and so a conversation) or a call. A trainer would weigh it twice.

The same words may well be sampled twice; what is known of when they were is then different.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from opencode_runs.trainable.histories import hashable, have_siblings
from opencode_runs.trainable.record import TokenNode, TokenTrace

_END = 100
"""Characters or tokens of a long answer's ends, by which it is told from others of its moment."""


@dataclass(slots=True)
class Marks:
    """What tells a trace and its answers from all others."""

    trace: int | None
    """None where it has no id."""
    answers: set[int]
    within: str
    """What of it stands twice in itself; empty if nothing does."""

    @classmethod
    def of(cls, trace: TokenTrace) -> "Marks":
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

    def found(self, marks: Marks) -> str:
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


def _within(trace: TokenTrace) -> str:
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
