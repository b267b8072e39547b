"""Inspecting runs: every trace's samples, standing and flaws, then the groups, what they teach and their advantages.

Memory holds one episode, and some figures of each trace. What stands twice is found, too: a history that is told again;
a trace, a message, an answer or a call, which would weigh double. An agent whose histories are restored has its forks
noted as they come about; of any other agent the graph alone tells. The same words may well be sampled twice; what is
known of when they were is then different.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opencode_runs.errors import BrokenGraphError
from opencode_runs.traces.reading import TraceFile, TraceFileReport, TraceReader, find_trace_files, lines_of
from opencode_runs.traces.record import NO_CALL, EpisodeRecord, SampleKind, TokenNode, TraceRecord
from opencode_runs.trainable.findings import (
    NO_TOKENS,
    SETTINGS,
    Flaw,
    GroupFigures,
    Report,
    TraceFigures,
    call_flaws,
    flaws_of,
    gathered,
    standing_flaw,
    summed,
)
from opencode_runs.trainable.samples import TrainedBranch, branch_paths, trained_branches

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
    """Return where conversations begin anew with what was said before: the first such message of each.

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
            one, other = ((node.token_ids, node.tools) for node in (nodes[earlier], nodes[root]))
            if earlier != root and ends[earlier] < root and one != other:
                anew.add(root)
    return anew


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
    """Return what an answer says, as text or in parts, without the thought before it."""
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


@dataclass(slots=True)
class TraceIdentity:
    """Holds what tells a trace and its answers from all others."""

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
        """Return what of a trace stands twice, in itself or since an earlier one; empty if nothing does."""
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
    """Return what tells a message from its siblings; the graph keeps a message of a request once."""
    when = node.timestamp if node.sampled else None
    return hashable([node.parent, node.sampled, when, node.message, node.token_ids, node.logprobs, node.tools])


def _moment(node: TokenNode) -> int:
    """Return what no other answer has: when it was, and what it is."""
    return hash((node.timestamp, hashable([node.message, node.token_ids])))


_COMPARED = (*SETTINGS, "min_tokens", "chat_template_kwargs")
Note = tuple[str, int, str]
"""An aspect of a rollout, a hash of its value, and what is said of it: of a long one only its number is."""


def notes_of(episode: EpisodeRecord) -> Iterator[Note]:
    """Yield what a rollout says of its group; of what failed nothing trains, so that it may differ."""
    yield _note("tasks", episode.task)
    yield _note("environments", episode.env)
    yield from _content_notes("contents of the task", episode.task_data, episode.task_hash)
    for trace in episode.traces:
        if not trace.ok or trace.wrong_types:
            continue
        yield _note(f'answers to whether seat "{trace.seat}" trains', trace.trainable)
        if not trace.trainable or not episode.ok:
            continue
        seat = f'of seat "{trace.seat}"'
        yield _note(f"models {seat}", trace.model)
        for name in _COMPARED:
            yield _note(f"values of {name} {seat}", (trace.sampling or {}).get(name))
        yield _note(f"tasks {seat}", trace.task_key)
        yield from _content_notes(f"contents of the task {seat}", trace.task_data, trace.task_hash)
        for name, reward in trace.rewards.items():
            if reward is not None:
                yield _note(f'weights of the reward "{name}" {seat}', reward.weight)


def _content_notes(aspect: str, data: Any, content_hash: str | None) -> Iterator[Note]:
    """A row's number and the hash that covers it may change from run to run, also within one that was resumed."""
    row = data.get("idx") if isinstance(data, dict) else None
    rest = {name: value for name, value in data.items() if name != "idx"} if isinstance(data, dict) else data
    yield _note(aspect, rest, said="")
    if content_hash is not None:
        yield _note(f"hashes of row {row}: {aspect}", content_hash)


def _note(aspect: str, value: Any, said: str | None = None) -> Note:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # one number, however it is spelled
    # Thousands of rollouts have the same few of them, also on their way to another process.
    # By its text: -1 and -2 have one hash, and a NaN another one each time.
    return sys.intern(aspect), hash(repr(hashable(value))), sys.intern(f"{value}") if said is None else said


@dataclass
class Group:
    """The rollouts of one task in one run, or what a trainer dispatched as one group."""

    run: Path
    key: str
    task: str
    asked: int | None
    """Rollouts of each task that the run was asked for."""
    rollouts: int = 0
    traces: list[TraceFigures] = field(default_factory=list)
    values: dict[str, dict[int, str]] = field(default_factory=dict)
    """The values that each aspect has in the group, by their hashes."""

    def figures(self) -> GroupFigures:
        """The figures of the group; gives each of its traces that train its advantage.

        The rule is GRPO's as prime-rl has it (`algo/grpo.py`): reward less the mean over all traces of the group that
        train, those of sub seats included. Where none has tokens, it is what they would get with tokens.
        """
        used = [trace for trace in self.traces if trace.unused_because is None]
        # A run of an evaluation client shows what its groups would teach.
        training = used or [trace for trace in self.traces if trace.unused_because == NO_TOKENS]
        rewards = [trace.reward or 0.0 for trace in training]
        mean = sum(rewards) / len(rewards) if rewards else None
        for trace, reward in zip(training, rewards, strict=True):
            trace.advantage = reward - (mean or 0.0)
        return GroupFigures(
            run=self.run, group=self.key, task=self.task, rollouts=self.rollouts, traces=len(self.traces),
            trained=len(used), mean_reward=mean, spread=max(rewards) - min(rewards) if rewards else None,
        )  # fmt: skip

    def flaws(self, figures: GroupFigures) -> Iterator[tuple[Flaw, str]]:
        if figures.spread == 0:
            yield Flaw.NO_SPREAD, f"{self.task}: every reward is {figures.mean_reward:g}, of {_rollouts(self.rollouts)}"
        for aspect, values in self.values.items():
            if len(values) > 1:
                named = [value for value in values.values() if value]
                told = f"{len(values)} {aspect}{': ' if named else ''}{', '.join(named)}"
                yield Flaw.MIXED, f"{self.task}: {told}"
                break
        if not self.traces:
            yield Flaw.FAILED, f"{self.task}: {_rollouts(self.rollouts)} without any trace"
        if self.asked is not None and self.rollouts < self.asked:
            yield Flaw.INCOMPLETE, f"{self.task}: {self.rollouts} of {self.asked} rollouts"


def _rollouts(count: int) -> str:
    return f"{count:,} rollouts" if count > 1 else "one rollout"


def inspect(
    paths: list[Path], *, max_tokens: int | None = None, vocabulary: int | None = None,
    allowed: frozenset[Flaw] = frozenset(),
) -> Report:  # fmt: skip
    """Return what a trainer would get from the runs at `paths`; of prime-rl's runs, the training rollouts are read.

    `max_tokens` and `vocabulary` are those of `inspected`, `allowed` that of `Inspection`.

    Raises:
        BadInputError: a path is not a run, or a file cannot be read as traces of this schema.
    """
    reading = TraceReader(lines_of)
    inspection = Inspection(allowed)
    for file, episode in reading.episodes(find_trace_files(paths, "train")):
        inspection.add(file, inspected(file, episode, max_tokens=max_tokens, vocabulary=vocabulary))
    return inspection.report(reading.runs)


@dataclass(slots=True)
class InspectedEpisode:
    """Holds what is found of an episode by itself."""

    group: str
    env: str
    """Empty where a trainer named the group."""
    task: str
    told: list[Note]
    traces: list[tuple[TraceFigures, TraceIdentity | None]]
    """Identities are those of a trace that would train; None of the others."""


def inspected(
    file: TraceFile, episode: EpisodeRecord, *, max_tokens: int | None = None, vocabulary: int | None = None
) -> InspectedEpisode:
    """Return what is found of an episode; whether it stands twice, and its advantages, its run alone can tell.

    Args:
        max_tokens: what the trainer cuts a sample to (its `seq_len`); None = it is not known.
        vocabulary: how many tokens its model's vocabulary has; None = it is not known.
    """
    key, env = episode.group_id or episode.task or "", "" if episode.group_id else episode.env
    found = InspectedEpisode(key, env, episode.called, [*notes_of(episode)], [])
    found.traces += [_trace(file, episode, trace, found, max_tokens, vocabulary) for trace in episode.traces]
    return found


@dataclass
class Inspection:
    """Holds what is found of episodes as they are read, one after the other."""

    allowed: frozenset[Flaw] = frozenset()
    """Kinds of findings that may be."""
    _repeats: Repeats = field(default_factory=Repeats)
    _groups: dict[tuple[Path, str, str], Group] = field(default_factory=dict)

    def add(self, file: TraceFile, found: InspectedEpisode) -> list[TraceFigures]:
        """Take an episode in; the figures of its traces have their advantages after `report` only."""
        fresh = Group(file.path, found.group, found.task, file.settings.num_rollouts)
        group = self._groups.setdefault((file.path, found.env, found.group), fresh)
        group.rollouts += 1
        for aspect, known, said in found.told:
            group.values.setdefault(aspect, {}).setdefault(known, said)
        for figures, marks in found.traces:
            if marks is not None and (repeated := self._repeats.found(marks)):
                figures.findings[Flaw.REPEATED] = repeated
            group.traces.append(figures)
        return [figures for figures, _ in found.traces]

    def report(self, runs: list[TraceFileReport]) -> Report:
        """The whole answer; `runs` says how reading went."""
        groups = list(self._groups.values())
        figures = [group.figures() for group in groups]
        traces = [trace for group in groups for trace in group.traces]
        found = [(flaw, f"{_place(trace)}: {text}") for trace in traces for flaw, text in trace.findings.items()]
        found += [flaw for group, own in zip(groups, figures, strict=True) for flaw in group.flaws(own)]
        # A last line that is still being written does not count.
        damaged = [run for run in runs if run.unreadable > run.truncated_end]
        found += [(Flaw.UNREADABLE, f'"{run.path}": {"; ".join(run.complaints)}') for run in damaged]
        found += [(Flaw.REPEATED, f'"{run.path}": {run.repeated:,} episodes') for run in runs if run.repeated]
        summary = summed(sum(run.episodes for run in runs), traces, figures)
        return Report(summary=summary, runs=runs, groups=figures, traces=traces, findings=gathered(found, self.allowed))


def _trace(
    file: TraceFile,
    episode: EpisodeRecord,
    trace: TraceRecord,
    group: InspectedEpisode,
    max_tokens: int | None,
    vocabulary: int | None,
) -> tuple[TraceFigures, TraceIdentity | None]:
    marks, broken = None, None
    samples, branches, forks = list[TrainedBranch](), 0, episode.noted_forks(trace)
    try:
        paths = branch_paths(trace)
        samples, branches = trained_branches(trace, paths), len(paths)
        again = [] if episode.restores_histories else told_again(trace.nodes)
        forks = max(forks, structural_forks(trace.nodes) + len(again))
    except BrokenGraphError as error:
        broken = str(error)
    unused = episode.unused_because(trace)
    findings: dict[Flaw, str] = {}
    scores = trace.scores
    if scores and not trace.ok:
        findings[Flaw.ERROR_REWARD] = f"reward {sum(scores):g}"
    if trace.trainable and (contradiction := standing_flaw(episode, trace, file.settings)):
        findings[Flaw.STANDING] = contradiction
    if trace.trainable and trace.wrong_types:
        findings[Flaw.TYPES] = trace.wrong_types
    elif unused in (None, NO_CALL):
        findings |= dict(call_flaws(episode, trace))
    if unused is None and broken is not None:
        findings[Flaw.GRAPH] = broken
        unused = "its graph is broken"
    elif unused is None:
        findings |= dict(flaws_of(trace, samples, max_tokens=max_tokens, vocabulary=vocabulary))
        marks = TraceIdentity.of(trace)
        if forks:
            findings[Flaw.FORKS] = _why_forked(trace, forks, again)
        unused = None if samples else NO_TOKENS
    elif not trace.ok or not episode.ok:
        findings[Flaw.FAILED] = unused
    kinds = Counter(sample.kind for sample in samples)
    tokens, counts = trace.has_tokens, [trace.tokens_of(sample.path, sample.trains) for sample in samples]
    figures = TraceFigures(
        run=file.path, group=group.group, task=group.task, episode=episode.id, trace=trace.id or episode.id,
        seat=trace.seat, unused_because=unused, turns=trace.turns, branches=branches, samples=len(samples),
        sections=kinds[SampleKind.SECTION], summaries=kinds[SampleKind.SUMMARY],
        prompt_tokens=sum(whole - trained for whole, trained in counts) if tokens else None,
        trained_tokens=sum(trained for _, trained in counts) if tokens else None,
        longest=max((whole for whole, _ in counts), default=0) if tokens else None,
        logprobs=_logprobs(trace), sampled_tokens=trace.sampled_tokens,
        forks=forks, fork_notes=trace.fork_notes, reward=_reward(trace),
        errors=[error.type for error in trace.errors], findings=findings,
    )  # fmt: skip
    return figures, marks


def _why_forked(trace: TraceRecord, forks: int, again: list[int]) -> str:
    seen = f"message node {again[0]} tells again what was said" if again else "its branches share turns of the model"
    return f"{forks} fork{'s' if forks > 1 else ''}: {next(iter(trace.fork_notes), seen)}"


def _logprobs(trace: TraceRecord) -> int | None:
    if trace.has_tokens:
        return sum(min(len(node.logprobs), node.trained) for node in trace.nodes)
    return None if trace.kept is None else sum(len(kept.logprobs) for kept in trace.kept)


def _reward(trace: TraceRecord) -> float | None:
    """JSON has no NaN; the finding says what the reward was."""
    scores = trace.scores
    return sum(scores) if scores and math.isfinite(sum(scores)) else None


def _place(trace: TraceFigures) -> str:
    seat = "" if trace.seat == "agent" else f' of seat "{trace.seat}"'
    return f"trace {trace.trace[:8]}{seat} ({trace.task})"
