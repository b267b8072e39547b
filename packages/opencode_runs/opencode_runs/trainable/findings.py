"""What the command says of traces, groups and runs, as `--json` prints it, and every kind of finding."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, computed_field

from opencode_runs.traces.reading import RunSettings, TraceFileReport
from opencode_runs.traces.record import (
    PER_SAMPLED,
    CallRecord,
    EpisodeRecord,
    HistoryRecord,
    SampleKind,
    TokenNode,
    TraceRecord,
)
from opencode_runs.trainable.samples import (
    Part,
    TrainedBranch,
    branch_paths,
    recorded_parts,
    training_sample,
    untrained_answers,
)

_SHOWN = 5
"""Places that are named of one kind of finding."""


class Flaw(StrEnum):
    NO_TOKENS = "no-tokens"
    FORKS = "forks"
    GRAPH = "graph"
    TYPES = "types"
    REPEATED = "repeated"
    CALLS = "calls"
    USAGE = "usage"
    SETTINGS = "settings"
    MIXED = "mixed"
    LENGTHS = "lengths"
    MASK = "mask"
    TOKEN_IDS = "token-ids"
    LOGPROBS = "logprobs"
    LOGPROB_VALUES = "logprob-values"
    LOGPROB_ZEROS = "logprob-zeros"
    UNTRAINED = "untrained"
    SECTIONS = "sections"
    NOT_SAMPLED = "not-sampled"
    TOO_LONG = "too-long"
    NO_REWARD = "no-reward"
    REWARD_VALUES = "reward-values"
    ERROR_REWARD = "error-reward"
    STANDING = "standing"
    UNREADABLE = "unreadable"
    FAILED = "failed"
    NO_SPREAD = "no-spread"
    INCOMPLETE = "incomplete"


class FlawMeaning(NamedTuple):
    """Holds what a flaw is, what to do, and whether `--check` fails for it."""

    what: str
    do: str
    fails: bool = True


MEANINGS = {
    Flaw.NO_TOKENS: FlawMeaning(
        "traces without token data, as an evaluation client leaves them",
        "run with the training client, in front of a vLLM engine: vf-eval … --client.type train "
        "--client.base-url http://HOST:8000/v1 -m MODEL",
    ),
    Flaw.FORKS: FlawMeaning(
        "a conversation's history changed: what follows trains in another context, and a trainer pays twice",
        "mend what changes the history (a plugin, a prompt that moves), or accept it: --allow forks",
    ),
    Flaw.GRAPH: FlawMeaning("a node hangs on none before it", "make the run again: this trace was damaged"),
    Flaw.TYPES: FlawMeaning(
        "fields hold other types than verifiers writes, such as a number as text", "repair or remove these traces"
    ),
    Flaw.REPEATED: FlawMeaning(
        "an episode, a trace, a conversation, an answer or a call stands twice: it would train twice",
        "remove the copies, or make the run again",
    ),
    Flaw.CALLS: FlawMeaning(
        "answers and calls of the model do not match one another", "make the run again: this trace was damaged"
    ),
    Flaw.USAGE: FlawMeaning(
        "a call counted other tokens than its branch holds: some were cut, added or moved",
        "make the run again: this trace was damaged",
    ),
    Flaw.SETTINGS: FlawMeaning(
        "answers of another model, or sampled otherwise, than their seat says",
        "see what changes the calls on their way; make the run again",
    ),
    Flaw.MIXED: FlawMeaning(
        "rollouts of one group are not of one task, model and sampling: their rewards do not compare",
        "make the group again with one configuration",
    ),
    Flaw.LENGTHS: FlawMeaning(
        "a message has not one mask entry for each token, or other streams of another length",
        "make the run again with a released verifiers",
    ),
    Flaw.MASK: FlawMeaning(
        "the tokens that train are not the end of their answer", "make the run again with a released verifiers"
    ),
    Flaw.TOKEN_IDS: FlawMeaning(
        "token ids that no vocabulary has, or not that of --vocab-size",
        "see that engine, tokenizer and trainer have the same model; make the run again",
    ),
    Flaw.LOGPROBS: FlawMeaning(
        "not one logprob for each trained token: a trainer reads the missing ones as 0, a probability of 1",
        "let the engine return the logprob of every sampled token, and make the run again",
    ),
    Flaw.LOGPROB_VALUES: FlawMeaning(
        "logprobs that are not valid: NaN, infinite, above 0, or vLLM's -9999",
        "look at the engine: its sampler or its precision is wrong",
    ),
    Flaw.LOGPROB_ZEROS: FlawMeaning(
        "every logprob of a trace, or of a long answer, is 0, as if each token had been certain",
        "look at the engine: it returns none, or processed ones at temperature 0",
    ),
    Flaw.UNTRAINED: FlawMeaning(
        "turns of the model that train nowhere", "see why the engine returned no tokens for them; make the run again"
    ),
    Flaw.SECTIONS: FlawMeaning(
        "sections and summaries of a compacted conversation are not those of its messages: one is missing, stands "
        "twice, or trains although it must not",
        "make the run again: this trace was damaged",
    ),
    Flaw.NOT_SAMPLED: FlawMeaning(
        "messages that the model did not sample are marked for training, in every branch that holds them",
        "make the run again: masks belong to sampled messages only",
    ),
    Flaw.TOO_LONG: FlawMeaning(
        "branches longer than --max-tokens: a trainer cuts them off and says nothing",
        "lower --env.agent.max-total-tokens, the window or the engine's max_model_len, or raise the trainer's seq_len",
    ),
    Flaw.NO_REWARD: FlawMeaning(
        "traces that would train without any reward: a trainer reads 0",
        "give the trace its reward, or let its seat not train (--env.include-sub-llm-in-trajectory false)",
    ),
    Flaw.REWARD_VALUES: FlawMeaning(
        "rewards that are not finite numbers, alone or summed, or missing beside others", "mend the rubric; score again"
    ),
    Flaw.ERROR_REWARD: FlawMeaning(
        "failed traces that carry a reward: nothing tells it from one that was earned",
        "leave them out, and do not score a rollout that failed",
    ),
    Flaw.STANDING: FlawMeaning(
        "traces or episodes that are ok and failed at once", "see which it is: what failed must not train"
    ),
    Flaw.UNREADABLE: FlawMeaning("lines that hold no episode", "repair or remove these lines"),
    Flaw.FAILED: FlawMeaning(
        "traces that failed: they never train", "see their errors; many of them waste the run", fails=False
    ),
    Flaw.NO_SPREAD: FlawMeaning(
        "groups whose rewards are all equal: every advantage is 0, so they teach nothing",
        "choose tasks of the band that teaches (opencode-difficulty recommend), or larger groups",
        fails=False,
    ),
    Flaw.INCOMPLETE: FlawMeaning(
        "groups with fewer rollouts than the run was asked for: it is still being written, or was stopped",
        "wait for its end, or go on with it: vf-eval … --resume",
        fails=False,
    ),
}


class Finding(BaseModel):
    """Everything that was found of one kind."""

    flaw: Flaw
    fails: bool
    """Whether a trainer must not use it."""
    what: str
    do: str
    count: int = 0
    """Traces, groups or runs that have it."""
    places: list[str] = []
    """The first of them, each with what is wrong there."""


def gathered(found: Iterable[tuple[Flaw, str]], allowed: frozenset[Flaw] = frozenset()) -> list[Finding]:
    """Single flaws, each with its place, by kind: what fails first, otherwise in the order of `Flaw`."""
    findings: dict[Flaw, Finding] = {}
    for flaw, place in found:
        meaning = MEANINGS[flaw]
        fails = meaning.fails and flaw not in allowed
        finding = findings.setdefault(flaw, Finding(flaw=flaw, fails=fails, what=meaning.what, do=meaning.do))
        finding.count += 1
        if len(finding.places) < _SHOWN:
            finding.places.append(place)
    order = list(Flaw)
    return sorted(findings.values(), key=lambda finding: (not finding.fails, order.index(finding.flaw)))


NO_TOKENS = "no token data"


@dataclass(slots=True, kw_only=True)
class TraceFigures:
    """One trace; there are as many as rollouts, so that they are small."""

    run: Path
    group: str
    """Rollouts of one task, as a trainer groups them: the trainer's group id, else the task's key."""
    task: str
    """What people call the task: its id, name, the beginning of its prompt, or its key."""
    episode: str
    trace: str
    seat: str
    unused_because: str | None
    """Why a trainer leaves it out; None if it trains."""
    turns: int
    branches: int
    samples: int
    """Branches that train something."""
    sections: int
    """Those of them that are sections of conversations that were compacted."""
    summaries: int
    prompt_tokens: int | None
    """Tokens of the samples that are context only; None without token data."""
    trained_tokens: int | None
    longest: int | None
    """Tokens of the longest sample."""
    logprobs: int | None
    """Trained tokens with a logprob; of an evaluation endpoint, logprobs that were kept."""
    sampled_tokens: int
    """Tokens of the answers, as the endpoint counted them."""
    forks: int
    fork_notes: list[str] = field(default_factory=list)
    reward: float | None
    """None where none was computed."""
    advantage: float | None = None
    """Reward less the mean of its group's traces that train, or would with tokens; None if it does not."""
    errors: list[str] = field(default_factory=list)
    findings: dict[Flaw, str] = field(default_factory=dict)


class GroupFigures(BaseModel):
    run: Path
    group: str
    task: str
    rollouts: int
    traces: int
    trained: int
    mean_reward: float | None
    spread: float | None
    """Largest less smallest reward; 0 teaches nothing."""


class Summary(BaseModel):
    episodes: int = 0
    traces: int = 0
    trained_traces: int = 0
    branches: int = 0
    samples: int = 0
    sections: int = 0
    """Samples that are sections of conversations that were compacted."""
    summaries: int = 0
    prompt_tokens: int = 0
    trained_tokens: int = 0
    logprobs: int = 0
    """Trained tokens with a logprob."""
    forks: int = 0
    groups: int = 0
    groups_with_spread: int = 0
    unused: dict[str, int] = {}
    """Traces that do not train, by reason."""


class Report(BaseModel):
    summary: Summary
    runs: list[TraceFileReport]
    groups: list[GroupFigures]
    traces: list[TraceFigures]
    findings: list[Finding]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def usable(self) -> bool:
        """Whether something trains, and nothing was found that a trainer must not use."""
        return self.summary.trained_traces > 0 and not any(finding.fails for finding in self.findings)


def summed(episodes: int, traces: Sequence[TraceFigures], groups: Sequence[GroupFigures]) -> Summary:
    """The summary; tokens, branches and forks are those of the traces that train."""
    used = [trace for trace in traces if trace.unused_because is None]
    named = ("branches", "samples", "sections", "summaries", "prompt_tokens", "trained_tokens", "logprobs", "forks")
    return Summary(
        episodes=episodes,
        traces=len(traces),
        trained_traces=len(used),
        groups=len(groups),
        groups_with_spread=sum(bool(group.spread) for group in groups),
        unused=Counter(trace.unused_because for trace in traces if trace.unused_because is not None),
        **{name: sum(getattr(trace, name) or 0 for trace in used) for name in named},
    )


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
    """Return what of an episode and a trace says that it failed while the rest says that it did not; empty if nothing.

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
    """Return how often saved retries try again, each rule's own tries included; None if they cannot be read."""
    if not isinstance(retries, dict):
        return None
    entries = (retries, *(rule for rule in retries.get("rules") or () if isinstance(rule, dict)))
    return sum(entry.get("max_retries") or 0 for entry in entries)


def flaws_of(
    trace: TraceRecord, samples: Iterable[TrainedBranch], *, max_tokens: int | None, vocabulary: int | None
) -> Iterator[Found]:
    """Yield what is wrong with a trace that a trainer would use, and with its samples; each flaw once."""
    yield from _reward_flaws(trace)
    if not trace.has_tokens:
        yield Flaw.NO_TOKENS, f"turns: {trace.turns}"
    nodes = list(enumerate(trace.nodes))
    numbered = [(number, node) for number, node in nodes if node.has_numbers]
    parts = recorded_parts(trace)
    left_out = untrained_answers(parts)
    to_train = [(number, node) for number, node in nodes if number not in left_out]
    checks = _NODE_CHECKS if trace.has_tokens else _MESSAGE_CHECKS
    for flaw, problem in checks.items():
        looked_at = to_train if flaw is Flaw.UNTRAINED else nodes
        yield from _of_nodes(numbered if flaw in _OF_NUMBERS else looked_at, flaw, problem)
    if parts and (wrong := [*_otherwise_recorded(trace, parts)]):
        yield Flaw.SECTIONS, _first(wrong)
    yield from _of_nodes(numbered, Flaw.TOKEN_IDS, lambda node: _token_ids(node, vocabulary or NO_VOCABULARY))
    logprobs = sum(len(node.logprobs) for _, node in numbered)
    if logprobs >= _CERTAIN and not any(any(node.logprobs) for _, node in numbered):
        yield Flaw.LOGPROB_ZEROS, f"{logprobs} of {logprobs}"
    else:
        yield from _of_nodes(numbered, Flaw.LOGPROB_ZEROS, _certain)
    if kept := _kept_otherwise(trace):
        yield Flaw.LOGPROBS, kept
    if trace.has_tokens and (wrong := [*_miscounted(trace, left_out)]):
        yield Flaw.USAGE, _first(wrong)
    if wrong := [*_set_otherwise(trace)]:
        yield Flaw.SETTINGS, _first(wrong)
    yield from _training_flaws(trace, samples, max_tokens)


def _otherwise_recorded(trace: TraceRecord, parts: Sequence[Part]) -> Iterator[str]:
    """Yield where the record of sections and summaries contradicts the messages, or itself."""
    history, holders = HistoryRecord.of(trace.info), Counter(number for part in parts for number in part.answers)
    for part in parts:
        if not part.answers:
            yield f"{part.name} is not there"
        elif twice := [number for number in part.answers if holders[number] > 1]:
            yield f"message node {twice[0]} of {part.name} is in another one as well"
        elif any(trace.nodes[number].trained for number in untrained_answers([part])):
            yield f"{part.name} trains, and only {history.trains} should"
    begun = Counter((section.conversation, section.summary) for section in history.sections)
    named = {section.conversation for section in history.sections}
    for conversation in sorted(named | {summary.conversation for summary in history.summaries}):
        made = {at: one for at, one in enumerate(history.summaries) if one.conversation == conversation}
        wanted = {None, *(at for at, one in made.items() if one.used)}
        if made and not made[min(made)].planned and not begun[conversation, None]:  # its first call was refused
            wanted.remove(None)
        for summary in wanted:
            if begun[conversation, summary] != 1:
                what = "its beginning" if summary is None else f"summary {summary}"
                yield f"{begun[conversation, summary]} sections of conversation {conversation} begin with {what}"
        if strange := [one for (name, one) in begun if name == conversation and one not in wanted]:
            yield f"a section of conversation {conversation} begins with summary {strange[0]}, which is not one of it"
    yield from _disagreeing(trace, parts, history)


def _disagreeing(trace: TraceRecord, parts: Sequence[Part], history: HistoryRecord) -> Iterator[str]:
    ends = {call.node: call.usage for call in trace.calls if call.node is not None and call.usage is not None}
    for section in history.sections:
        at, usage = section.summary, ends.get(section.last)
        begun = history.summaries[at].node if at is not None and 0 <= at < len(history.summaries) else None
        if begun is not None and begun >= section.first:
            yield f"the section of message nodes {section.first} to {section.last} comes before its summary"
        if usage is not None and section.tokens not in (None, usage.input_tokens + usage.completion_tokens):
            yield f"{section.tokens:,} tokens up to message node {section.last}, whose call counted others"
    listed = {number for part in parts for number in part.answers}
    answers = ([number for number in path if trace.nodes[number].sampled] for path in branch_paths(trace))
    missing = [[one for one in path if one not in listed] for path in answers if not listed.isdisjoint(path)]
    # A fork leaves answers behind, of which the newest branch of its section says nothing.
    yield from (
        f"message node {path[0]} is an answer of no section" for path in [*filter(None, missing)][history.forks :]
    )


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
    too_long = []
    for sample in samples:
        trained.update(sample.trains)
        length = trace.tokens_of(sample.path, sample.trains)[0]
        if max_tokens is not None and length > max_tokens:
            lost = sum(training_sample(trace, sample).mask[max_tokens:])
            too_long.append((length, lost, sample.branch, sample.kind))
    wrong = [
        number for number, node in enumerate(trace.nodes) if node.sampled and node.trained and trained[number] != 1
    ]
    if wrong:
        yield Flaw.GRAPH, f"node {wrong[0]} trains {trained[wrong[0]]} times"
    told = []
    for length, lost, branch, kind in sorted(too_long, reverse=True):
        what = "" if kind is SampleKind.CONVERSATION else f" ({kind})"
        told.append(f"branch {branch}{what}: {length:,} tokens, {lost:,} trained ones behind the {max_tokens:,}th")
    if told:
        yield Flaw.TOO_LONG, "; ".join(told[:_SHOWN]) + f"; and {len(told) - _SHOWN} more" * (len(told) > _SHOWN)


def call_flaws(episode: EpisodeRecord, trace: TraceRecord) -> Iterator[Found]:
    """Yield where the answers of a trace, or the trace of its sub calls, are missing."""
    wrong = [*_unmatched(trace)]
    if trace.sub_trace and trace.sub_trace not in (other.id for other in episode.traces):
        wrong.append(f"its sub calls are those of trace {trace.sub_trace[:8]}, which is not there")
    if wrong:
        yield Flaw.CALLS, _first(wrong)


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


def _miscounted(trace: TraceRecord, left_out: Collection[int]) -> Iterator[str]:
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
        sampled = call.usage.completion_tokens if call.node in left_out else node.trained
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
    here = trace.nodes[number].parent if 0 <= number < len(trace.nodes) else None
    while here is not None and here not in answered:
        here = trace.nodes[here].parent
    return None if here is None else answered[here]
