"""What the model's calls say of a trace: which answers there are, and how many tokens each had before it and in it."""

from collections import Counter
from collections.abc import Iterator, Mapping

from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.record import CallRecord, TokenEpisode, TokenTrace

Found = tuple[Flaw, str]
SETTINGS = (
    *("temperature", "top_p", "top_k", "min_p", "max_tokens", "reasoning_effort", "logit_bias"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
"""Settings of sampling that make another policy of the same weights."""
LASTING = frozenset({"temperature", "top_p", "top_k", "min_p"})
"""Those of them that an agent may choose where its seat does not, once for each conversation."""


def call_flaws(episode: TokenEpisode, trace: TokenTrace) -> Iterator[Found]:
    """Where the answers of a trace, or the trace of its sub calls, are missing."""
    wrong = [*_unmatched(trace)]
    if trace.sub_trace and trace.sub_trace not in (other.id for other in episode.traces):
        wrong.append(f"its sub calls are those of trace {trace.sub_trace[:8]}, which is not there")
    if wrong:
        yield Flaw.CALLS, _first(wrong)


def evidence_flaws(trace: TokenTrace) -> Iterator[Found]:
    """Where a trace contradicts its calls; its graph must be sound."""
    if trace.has_tokens and (wrong := [*_miscounted(trace)]):
        yield Flaw.USAGE, _first(wrong)
    if wrong := [*_set_otherwise(trace)]:
        yield Flaw.SETTINGS, _first(wrong)


def _first(wrong: list[str]) -> str:
    return wrong[0] + (f"; and {len(wrong) - 1} more" if len(wrong) > 1 else "")


def _unmatched(trace: TokenTrace) -> Iterator[str]:
    names = [call.node for call in trace.calls if call.node is not None]
    if names == [number for number, node in enumerate(trace.nodes) if node.sampled]:
        return
    named = Counter(names)
    for number, count in sorted(named.items()):
        if not 0 <= number < len(trace.nodes):
            yield f"a call names message node {number}, which is not there"
        elif not trace.nodes[number].sampled:
            yield f"a call names message node {number} as its answer, which is not sampled"
        elif count > 1:
            yield f"{count} calls name message node {number} as their answer"
    for number, node in enumerate(trace.nodes):
        if node.sampled and number not in named:
            yield f"message node {number} is an answer, and no call names it"


def _miscounted(trace: TokenTrace) -> Iterator[str]:
    before: list[int] = []
    """Tokens of the branch in front of each node."""
    for node in trace.nodes:
        before.append(0 if node.parent is None else before[node.parent] + len(trace.nodes[node.parent].token_ids))
    for call in trace.calls:
        if call.node is None or not 0 <= call.node < len(trace.nodes) or not trace.nodes[call.node].sampled:
            continue
        node = trace.nodes[call.node]
        if call.usage is None:
            yield f"message node {call.node}: its call says nothing of its tokens"
            continue
        sampled = node.trained
        given = before[call.node] + len(node.token_ids) - sampled
        if sampled != call.usage.completion_tokens:
            yield f"message node {call.node}: {sampled:,} trained tokens of {call.usage.completion_tokens:,} sampled"
        elif given != call.usage.input_tokens:
            had = call.usage.input_tokens
            yield f"message node {call.node}: {given:,} tokens before its answer, its call had {had:,}"


def _set_otherwise(trace: TokenTrace) -> Iterator[str]:
    answered = {call.node: call for call in trace.calls if call.node is not None}
    model = trace.model or next((call.model for call in answered.values()), None)
    settings = trace.sampling or {}
    wanted = [(name, settings.get(name)) for name in SETTINGS if settings.get(name) is not None or name in LASTING]
    right: set[int | None] = set()
    for number, call in answered.items():
        if call.model != model:
            yield f"message node {number}: answered by {call.model}, not by {model}"
        before = _answer_before(trace, number, answered)
        chosen, sampled = before.sampling or {} if before else None, call.sampling or {}
        as_before = before is not None and before.node in right and sampled == chosen
        right.add(number)
        if as_before:
            continue
        for name, given in wanted:
            if given is None and chosen is None:
                continue
            asked = chosen.get(name) if given is None and chosen is not None else given
            if (had := sampled.get(name)) != asked:
                right.discard(number)
                yield f"message node {number}: sampled with {name} {had}, not {asked}"


def _answer_before(trace: TokenTrace, number: int, answered: Mapping[int, CallRecord]) -> CallRecord | None:
    """The call of the answer before one in its conversation."""
    here = trace.nodes[number].parent if 0 <= number < len(trace.nodes) else None
    while here is not None and here not in answered:
        here = trace.nodes[here].parent
    return None if here is None else answered[here]
