"""Inspecting runs: every trace's samples, standing and flaws, then the groups and what they teach.

Memory holds one episode, and some figures of each trace.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

from opencode_runs.traces.reading import Reading, RunReport
from opencode_runs.traces.runs import TraceFile, find_trace_files
from opencode_runs.trainable.checks import flaws_of, standing_flaw
from opencode_runs.trainable.evidence import call_flaws
from opencode_runs.trainable.figures import NO_TOKENS, Report, TraceFigures, summed
from opencode_runs.trainable.findings import Flaw, gathered
from opencode_runs.trainable.groups import Group, Telling, Told
from opencode_runs.trainable.histories import structural_forks, told_again
from opencode_runs.trainable.record import NO_CALL, TokenEpisode, TokenTrace
from opencode_runs.trainable.repeats import Marks, Repeats
from opencode_runs.trainable.samples import BrokenGraphError, TrainedBranch, branch_paths, trained_branches


def inspect(
    paths: list[Path], *, max_tokens: int | None = None, vocabulary: int | None = None,
    allowed: frozenset[Flaw] = frozenset(),
) -> Report:  # fmt: skip
    """What a trainer would get from the runs at `paths`; of prime-rl's runs, the training rollouts are read.

    `max_tokens` and `vocabulary` are those of `Inspector`, `allowed` that of `Inspection`.

    Raises:
        BadInputError: a path is not a run, or a file cannot be read as traces of this schema.
    """
    reading = Reading.of(TokenEpisode)
    inspector, inspection = Inspector(max_tokens, vocabulary), Inspection(allowed)
    for file, episode in reading.episodes(find_trace_files(paths, training=True)):
        inspection.add(file, inspector.inspect(file, episode))
    return inspection.report(reading.runs)


@dataclass(slots=True)
class Inspected:
    """What is found of an episode by itself."""

    group: str
    env: str
    """Empty where a trainer named the group."""
    task: str
    """What people call it."""
    told: list[Told]
    traces: list[tuple[TraceFigures, Marks | None]]
    """Marks are those of a trace that would train; None of the others."""


@dataclass
class Inspector:
    """Inspects episodes, each by itself. Its fields say what is known of the trainer."""

    max_tokens: int | None = None
    """What it cuts a sample to (its `seq_len`); None = it is not known."""
    vocabulary: int | None = None
    """How many tokens its model's vocabulary has; None = it is not known."""
    _telling: Telling = field(default_factory=Telling)

    def inspect(self, file: TraceFile, episode: TokenEpisode) -> Inspected:
        """What is found of an episode; whether it stands twice, and its advantages, its run alone can tell."""
        key, env = episode.group_id or episode.task or "", "" if episode.group_id else episode.env
        found = Inspected(key, env, episode.called, self._telling.of(episode), [])
        found.traces += [_trace(file, episode, trace, self, found) for trace in episode.traces]
        return found


@dataclass
class Inspection:
    """What is found of episodes as they are read, one after the other."""

    allowed: frozenset[Flaw] = frozenset()
    """Kinds of findings that may be."""
    _repeats: Repeats = field(default_factory=Repeats)
    _groups: dict[tuple[Path, str, str], Group] = field(default_factory=dict)

    def add(self, file: TraceFile, found: Inspected) -> list[TraceFigures]:
        """Take an episode in; the figures of its traces have their advantages after `report` only."""
        fresh = Group(file.path, found.group, found.task, file.settings.num_rollouts)
        group = self._groups.setdefault((file.path, found.env, found.group), fresh)
        group.rollouts += 1
        group.mixture.add(found.told)
        for figures, marks in found.traces:
            if marks is not None and (repeated := self._repeats.found(marks)):
                figures.findings[Flaw.REPEATED] = repeated
            group.traces.append(figures)
        return [figures for figures, _ in found.traces]

    def report(self, runs: list[RunReport]) -> Report:
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
    file: TraceFile, episode: TokenEpisode, trace: TokenTrace, inspector: Inspector, group: Inspected
) -> tuple[TraceFigures, Marks | None]:
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
        findings |= dict(flaws_of(trace, samples, max_tokens=inspector.max_tokens, vocabulary=inspector.vocabulary))
        marks = Marks.of(trace)
        if forks:
            findings[Flaw.FORKS] = _why_forked(trace, forks, again)
        unused = None if samples else NO_TOKENS
    elif not trace.ok or not episode.ok:
        findings[Flaw.FAILED] = unused
    tokens, counts = trace.has_tokens, [trace.tokens_of(sample) for sample in samples]
    figures = TraceFigures(
        run=file.path, group=group.group, task=group.task, episode=episode.id, trace=trace.id or episode.id,
        seat=trace.seat, unused_because=unused, turns=trace.turns, branches=branches, samples=len(samples),
        prompt_tokens=sum(whole - trained for whole, trained in counts) if tokens else None,
        trained_tokens=sum(trained for _, trained in counts) if tokens else None,
        longest=max((whole for whole, _ in counts), default=0) if tokens else None,
        logprobs=_logprobs(trace), sampled_tokens=trace.sampled_tokens,
        forks=forks, fork_notes=trace.fork_notes, reward=_reward(trace),
        errors=[error.type for error in trace.errors], findings=findings,
    )  # fmt: skip
    return figures, marks


def _why_forked(trace: TokenTrace, forks: int, again: list[int]) -> str:
    seen = f"message node {again[0]} tells again what was said" if again else "its branches share turns of the model"
    return f"{forks} fork{'s' if forks > 1 else ''}: {next(iter(trace.fork_notes), seen)}"


def _logprobs(trace: TokenTrace) -> int | None:
    if trace.has_tokens:
        return sum(min(len(node.logprobs), node.trained) for node in trace.nodes)
    return None if trace.kept is None else sum(len(kept.logprobs) for kept in trace.kept)


def _reward(trace: TokenTrace) -> float | None:
    """JSON has no NaN; the finding says what the reward was."""
    scores = trace.scores
    return sum(scores) if scores and math.isfinite(sum(scores)) else None


def _place(trace: TraceFigures) -> str:
    seat = "" if trace.seat == "agent" else f' of seat "{trace.seat}"'
    return f"trace {trace.trace[:8]}{seat} ({trace.task})"
