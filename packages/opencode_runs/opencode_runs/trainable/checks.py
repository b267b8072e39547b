"""What is wrong with one trace for a trainer that would use it, found in the trace and in the samples made of it.

Nothing is taken on trust that can be counted again: samples are checked against the nodes that they came from, nodes
against the model's calls.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from opencode_runs.traces.reading import RunSettings
from opencode_runs.traces.record import PER_SAMPLED, CallRecord, EpisodeRecord, TokenNode, TraceRecord
from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.samples import TrainedBranch, training_sample

Found = tuple[Flaw, str]
SETTINGS = (
    *("temperature", "top_p", "top_k", "min_p", "max_tokens", "reasoning_effort", "logit_bias"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
"""Settings of sampling that make another policy of the same weights."""
LASTING = frozenset({"temperature", "top_p", "top_k", "min_p"})
"""Those of them that an agent may choose where its seat does not, once for each conversation."""
_NO_LOGPROB = -9999.0
"""What vLLM writes for a token whose logprob it does not have."""
_LARGEST = 3.4028234e38
"""Beyond it a trainer's floats are infinite."""
_CERTAIN, _CERTAIN_ANSWER = 3, 32
"""Tokens from which on a whole trace, or one answer of it, cannot have been certain."""
NO_VOCABULARY = 1 << 19
"""More tokens than any model's vocabulary has."""


def standing_flaw(episode: EpisodeRecord, trace: TraceRecord, run: RunSettings) -> str:
    """What of an episode and a trace says that it failed while the rest says that it did not; empty if nothing.

    Errors of earlier tries are kept, so that what is tried again may have some.
    """
    if trace.ok and trace.errors:
        last = trace.errors[-1].type
        stopped = trace.stop_condition in ("error", f"{last.removesuffix('Error').lower()}_error")
        if stopped or not _tries_of(trace.retries):
            return f"it is ok and has the error {last}"
    if episode.ok and (failed := [other.seat for other in episode.traces if not (other.ok or other.wrong_types)]):
        return f'its episode is ok, and its trace of seat "{failed[0]}" is not'
    if episode.ok and episode.errors and _tries_of(run.retries) == 0:
        return f"its episode is ok and has the error {episode.errors[-1].type}"
    if not episode.ok and not episode.errors and all(other.ok for other in episode.traces):
        return "its episode failed, and nothing in it did"
    return ""


def _tries_of(retries: Any) -> int | None:
    """How often saved retries try again, each rule's own tries included; None if they cannot be read."""
    if not isinstance(retries, dict):
        return None
    entries = (retries, *(rule for rule in retries.get("rules") or () if isinstance(rule, dict)))
    return sum(entry.get("max_retries") or 0 for entry in entries)


def flaws_of(
    trace: TraceRecord, samples: Iterable[TrainedBranch], *, max_tokens: int | None, vocabulary: int | None
) -> Iterator[Found]:
    """What is wrong with a trace that a trainer would use, and with its samples; each flaw once."""
    yield from _reward_flaws(trace)
    if not trace.has_tokens:
        yield Flaw.NO_TOKENS, f"turns: {trace.turns}"
    nodes = list(enumerate(trace.nodes))
    numbered = [(number, node) for number, node in nodes if node.has_numbers]
    checks = _NODE_CHECKS if trace.has_tokens else _MESSAGE_CHECKS
    for flaw, problem in checks.items():
        yield from _of_nodes(numbered if flaw in _OF_NUMBERS else nodes, flaw, problem)
    yield from _of_nodes(numbered, Flaw.TOKEN_IDS, lambda node: _token_ids(node, vocabulary or NO_VOCABULARY))
    logprobs = sum(len(node.logprobs) for _, node in numbered)
    if logprobs >= _CERTAIN and not any(any(node.logprobs) for _, node in numbered):
        yield Flaw.LOGPROB_ZEROS, f"{logprobs} of {logprobs}"
    else:
        yield from _of_nodes(numbered, Flaw.LOGPROB_ZEROS, _certain)
    if wrong := _kept_otherwise(trace):
        yield Flaw.LOGPROBS, wrong
    yield from evidence_flaws(trace)
    yield from _training_flaws(trace, samples, max_tokens)


def _of_nodes(
    nodes: Iterable[tuple[int, TokenNode]], flaw: Flaw, problem: Callable[[TokenNode], str]
) -> Iterator[Found]:
    wrong = [(number, text) for number, node in nodes if (text := problem(node))]
    if wrong:
        more = f"; and {len(wrong) - 1} messages more" if len(wrong) > 1 else ""
        yield flaw, f"message node {wrong[0][0]}: {wrong[0][1]}{more}"


def _reward_flaws(trace: TraceRecord) -> Iterator[Found]:
    scores = trace.scores
    if not scores:
        yield Flaw.NO_REWARD, f'seat "{trace.seat}"'
        return
    wrong = [
        name for name, reward in trace.rewards.items() if reward is None or not _finite(reward.score, reward.weight)
    ]
    if wrong:
        # Of several rewards, one that was not computed counts as 0 in the sum.
        yield Flaw.REWARD_VALUES, ", ".join(wrong)
    elif not _finite(sum(scores)):
        yield Flaw.REWARD_VALUES, f"the sum of {', '.join(trace.rewards)}"


def _finite(score: float | None, weight: float = 1.0) -> bool:
    return score is not None and math.isfinite(score * weight) and abs(score * weight) <= _LARGEST


def _token_ids(node: TokenNode, vocabulary: int) -> str:
    if not node.token_ids or (min(node.token_ids) >= 0 and max(node.token_ids) < vocabulary):
        return ""
    wrong = [token for token in node.token_ids if not 0 <= token < vocabulary]
    return f"{len(wrong)} of {len(node.token_ids)}, the first {wrong[0]}"


def _kept_otherwise(trace: TraceRecord) -> str:
    """What is wrong with the logprobs of an evaluation."""
    if not trace.kept:
        return ""
    held = Counter(kept.node for kept in trace.kept)
    for kept in trace.kept:
        if not 0 <= kept.node < len(trace.nodes) or not trace.nodes[kept.node].sampled or held[kept.node] > 1:
            return f"kept of message node {kept.node}, which is not an answer of its own"
        if kept.tokens is not None and len(kept.tokens) != len(kept.logprobs):
            return f"kept of message node {kept.node}: {len(kept.tokens)} tokens, {len(kept.logprobs)} logprobs"
    return ""


def _lengths(node: TokenNode) -> str:
    tokens, sampled = len(node.token_ids), node.trained
    if tokens != len(node.mask):
        return f"{tokens} tokens, {len(node.mask)} mask entries"
    if len(node.is_content) not in (0, tokens):
        return f"{tokens} tokens, {len(node.is_content)} entries of is_content"
    for name in PER_SAMPLED:
        values = getattr(node, name)
        if values is not None and len(values) != sampled:
            return f"{sampled} trained tokens, {len(values)} {name}"
    wrong = [name for name, values in (node.loss_weights or {}).items() if len(values) != tokens]
    return f"{tokens} tokens, other loss weights {wrong[0]}" if wrong else ""


def _mask(node: TokenNode) -> str:
    """An answer is its generation prompt, then what was sampled."""
    sampled = node.trained
    if not node.sampled or not sampled:
        return ""
    if not all(node.mask[-sampled:]):
        return "others stand between or behind them"
    if node.is_content and node.is_content != node.mask:
        return "is_content says otherwise"
    return ""


def _logprob_count(node: TokenNode) -> str:
    sampled = node.trained
    return "" if sampled == len(node.logprobs) else f"{sampled} trained tokens, {len(node.logprobs)} logprobs"


def _certain(node: TokenNode) -> str:
    count = len(node.logprobs)
    return f"{count} of {count}" if count >= _CERTAIN_ANSWER and not any(node.logprobs) else ""


def _logprob_values(node: TokenNode) -> str:
    values = node.logprobs
    # A sum is NaN if one of them is, which no comparison tells.
    if not values or (not math.isnan(sum(values)) and min(values) > _NO_LOGPROB and max(values) <= 0):
        return ""
    wrong = [value for value in values if not _NO_LOGPROB < value <= 0]
    return f"{len(wrong)} of {len(values)}, the first {wrong[0]:g}"


def _not_sampled(node: TokenNode) -> str:
    if node.sampled and node.role not in (None, "assistant"):
        return f"a message of role {node.role} is marked as sampled"
    return f"{node.trained} tokens" if node.mask and not node.sampled and node.trained else ""


_MESSAGE_CHECKS: dict[Flaw, Callable[[TokenNode], str]] = {
    Flaw.GRAPH: lambda node: "an answer to nothing" if node.sampled and node.parent is None else "",
    Flaw.LENGTHS: _lengths,
    Flaw.NOT_SAMPLED: _not_sampled,
}
_NODE_CHECKS: dict[Flaw, Callable[[TokenNode], str]] = _MESSAGE_CHECKS | {
    Flaw.MASK: _mask,
    Flaw.LOGPROBS: _logprob_count,
    Flaw.LOGPROB_VALUES: _logprob_values,
    Flaw.UNTRAINED: lambda node: "none of its tokens is marked" if node.sampled and not node.trained else "",
}
_OF_NUMBERS = frozenset((Flaw.LENGTHS, Flaw.MASK, Flaw.LOGPROBS, Flaw.LOGPROB_VALUES))
"""Checks that find nothing in a message without tokens."""


def _training_flaws(trace: TraceRecord, samples: Iterable[TrainedBranch], max_tokens: int | None) -> Iterator[Found]:
    trained: Counter[int] = Counter()
    longest = (0, 0, 0)
    for sample in samples:
        trained.update(sample.trains)
        lost = 0 if max_tokens is None else sum(training_sample(trace, sample).mask[max_tokens:])
        longest = max(longest, (trace.tokens_of(sample.path, sample.trains)[0], lost, sample.branch))
    wrong = [
        number for number, node in enumerate(trace.nodes) if node.sampled and node.trained and trained[number] != 1
    ]
    if wrong:
        yield Flaw.GRAPH, f"node {wrong[0]} trains {trained[wrong[0]]} times"
    length, lost, branch = longest
    if max_tokens is not None and length > max_tokens:
        yield Flaw.TOO_LONG, f"branch {branch}: {length:,} tokens, {lost:,} trained ones behind the {max_tokens:,}th"


def call_flaws(episode: EpisodeRecord, trace: TraceRecord) -> Iterator[Found]:
    """Where the answers of a trace, or the trace of its sub calls, are missing."""
    wrong = [*_unmatched(trace)]
    if trace.sub_trace and trace.sub_trace not in (other.id for other in episode.traces):
        wrong.append(f"its sub calls are those of trace {trace.sub_trace[:8]}, which is not there")
    if wrong:
        yield Flaw.CALLS, _first(wrong)


def evidence_flaws(trace: TraceRecord) -> Iterator[Found]:
    """Where a trace contradicts its calls; its graph must be sound."""
    if trace.has_tokens and (wrong := [*_miscounted(trace)]):
        yield Flaw.USAGE, _first(wrong)
    if wrong := [*_set_otherwise(trace)]:
        yield Flaw.SETTINGS, _first(wrong)


def _first(wrong: list[str]) -> str:
    return wrong[0] + (f"; and {len(wrong) - 1} more" if len(wrong) > 1 else "")


def _unmatched(trace: TraceRecord) -> Iterator[str]:
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


def _miscounted(trace: TraceRecord) -> Iterator[str]:
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


def _set_otherwise(trace: TraceRecord) -> Iterator[str]:
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


def _answer_before(trace: TraceRecord, number: int, answered: Mapping[int, CallRecord]) -> CallRecord | None:
    """The call of the answer before one in its conversation."""
    here = trace.nodes[number].parent if 0 <= number < len(trace.nodes) else None
    while here is not None and here not in answered:
        here = trace.nodes[here].parent
    return None if here is None else answered[here]
