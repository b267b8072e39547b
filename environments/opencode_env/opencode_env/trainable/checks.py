"""What is wrong with one trace for a trainer that would use it, found in the trace and in the samples made of it.

Nothing is taken on trust that can be counted again: samples are checked against the nodes that they came from.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from opencode_env.trainable.findings import Flaw
from opencode_env.trainable.record import TokenNode, TokenTrace
from opencode_env.trainable.samples import TrainingSample

Found = tuple[Flaw, str]

_NO_LOGPROB = -9999.0
"""What vLLM writes for a token whose logprob it does not have."""


def structural_forks(trace: TokenTrace) -> int:
    """Branches that leave another one behind a turn of the model; what an environment itself notes may be more."""
    children = Counter(node.parent for node in trace.nodes if node.parent is not None)
    behind: set[int] = set()
    for number, node in enumerate(trace.nodes):
        if node.sampled or node.parent in behind:
            behind.add(number)
    return sum(count - 1 for number, count in children.items() if number in behind)


def forks_of(trace: TokenTrace) -> int:
    """How many times a conversation's history changed."""
    return max(trace.history.forks if trace.history else 0, structural_forks(trace))


def failed_flaws(trace: TokenTrace) -> Iterator[Found]:
    """What is wrong with a trace that failed."""
    if (scores := list(trace.scores)) and not trace.ok:
        yield Flaw.ERROR_REWARD, f"reward {sum(scores):g}"


def flaws_of(trace: TokenTrace, samples: Iterable[TrainingSample], max_tokens: int | None) -> Iterator[Found]:
    """What is wrong with a trace that a trainer would use, and with its samples; each flaw once."""
    yield from _reward_flaws(trace)
    if not trace.has_tokens:
        yield Flaw.NO_TOKENS, f"turns: {trace.turns}"
        return
    if forks := forks_of(trace):
        yield Flaw.FORKS, _why_forked(trace, forks)
    for flaw, problem in _NODE_CHECKS.items():
        wrong = [(number, text) for number, node in enumerate(trace.nodes) if (text := problem(node))]
        if wrong:
            more = f"; and {len(wrong) - 1} messages more" if len(wrong) > 1 else ""
            yield flaw, f"message node {wrong[0][0]}: {wrong[0][1]}{more}"
    yield from _training_flaws(trace, samples, max_tokens)


def _reward_flaws(trace: TokenTrace) -> Iterator[Found]:
    scores = list(trace.scores)
    if not scores:
        yield Flaw.NO_REWARD, f'seat "{trace.seat}"'
    elif len(scores) < len(trace.rewards) or not all(map(math.isfinite, scores)):
        # Of several rewards, one that was not computed counts as 0 in the sum.
        named = (name for name, reward in trace.rewards.items() if reward is None or not _finite(reward.score))
        yield Flaw.REWARD_VALUES, ", ".join(named)


def _finite(score: float | None) -> bool:
    return score is not None and math.isfinite(score)


def _why_forked(trace: TokenTrace, forks: int) -> str:
    why = next(iter(trace.fork_notes), "its branches share turns of the model")
    return f"{forks} fork{'s' if forks > 1 else ''}: {why}"


def _lengths(node: TokenNode) -> str:
    same = len(node.token_ids) == len(node.mask)
    return "" if same else f"{len(node.token_ids)} tokens, {len(node.mask)} mask entries"


def _logprob_count(node: TokenNode) -> str:
    sampled = sum(node.mask)
    return "" if sampled == len(node.logprobs) else f"{sampled} trained tokens, {len(node.logprobs)} logprobs"


def _logprob_values(node: TokenNode) -> str:
    wrong = [value for value in node.logprobs if not _NO_LOGPROB < value <= 0]
    return f"{len(wrong)} of {len(node.logprobs)}, the first {wrong[0]:g}" if wrong else ""


def _untrained(node: TokenNode) -> str:
    return "none of its tokens is marked" if node.sampled and not any(node.mask) else ""


def _not_sampled(node: TokenNode) -> str:
    return f"{sum(node.mask)} tokens" if not node.sampled and any(node.mask) else ""


_NODE_CHECKS: dict[Flaw, Callable[[TokenNode], str]] = {
    Flaw.LENGTHS: _lengths,
    Flaw.LOGPROBS: _logprob_count,
    Flaw.LOGPROB_VALUES: _logprob_values,
    Flaw.UNTRAINED: _untrained,
    Flaw.NOT_SAMPLED: _not_sampled,
}


def _training_flaws(trace: TokenTrace, samples: Iterable[TrainingSample], max_tokens: int | None) -> Iterator[Found]:
    trained: Counter[int] = Counter()
    longest = (0, 0, 0)
    for sample in samples:
        trained.update(sample.trains)
        longest = max(longest, (len(sample.token_ids), sum(sample.mask[max_tokens:]), sample.branch))
    wrong = [
        number for number, node in enumerate(trace.nodes) if any(node.mask) and node.sampled and trained[number] != 1
    ]
    if wrong:
        yield Flaw.GRAPH, f"node {wrong[0]} trains {trained[wrong[0]]} times"
    length, lost, branch = longest
    if max_tokens is not None and length > max_tokens:
        yield Flaw.TOO_LONG, f"branch {branch}: {length:,} tokens, {lost:,} trained ones behind the {max_tokens:,}th"
