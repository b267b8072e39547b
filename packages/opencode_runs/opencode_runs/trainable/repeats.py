"""What stands twice: a trace, a message, an answer (and so a conversation) or a call. A trainer would weigh it twice.

The same words may well be sampled twice; what is known of when they were is then different.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from opencode_runs.trainable.histories import hashable, have_siblings
from opencode_runs.trainable.record import TokenNode, TokenTrace


@dataclass
class Repeats:
    """Finds traces and answers that were seen before, in whatever run; remembers a number of each."""

    _traces: set[int] = field(default_factory=set)
    _answers: set[int] = field(default_factory=set)

    def found(self, trace: TokenTrace) -> str:
        """What of a trace stands twice, in itself or since an earlier one; empty if nothing does."""
        answers = [_moment(node) for node in trace.nodes if node.sampled and node.timestamp is not None]
        own, name = set(answers), hash(trace.id)
        problem = _within(trace)
        if not problem and len(own) < len(answers):
            problem = "an answer of one moment stands in it twice"
        if not problem and trace.id and name in self._traces:
            problem = "another trace has the same id"
        if not problem and not own.isdisjoint(self._answers):
            problem = "an answer of one moment stands in another trace too"
        self._traces.add(name)
        self._answers |= own
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
    """What no other answer has: when it was, and what it is."""
    return hash((node.timestamp, hashable(node.message), hashable(node.token_ids)))
