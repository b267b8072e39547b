"""A trace's training samples, by the rules that prime-rl documents (its `orchestrator/trajectories.py`, 559b447).

One sample for each branch that trains anything: its nodes' tokens from the root to the leaf. A sampled node trains in
the first branch that holds it; a later branch carries its tokens as context. Any node's own mask says which of its
tokens train, and its logprobs belong to the true entries of the mask, in order. Of a conversation that was compacted,
each section and each summary is a branch.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opencode_runs.errors import BrokenGraphError
from opencode_runs.traces.record import HistoryRecord, SampleKind

NodeGraph = Any
"""A trace: `verifiers.v1.trace.Trace`, or what a line of `traces.jsonl` says of one. Of its `nodes`, `parent`,
`sampled`, `token_ids`, `mask` and `logprobs` are read, as lists or as arrays; and what `info` says of compactions."""


@dataclass(frozen=True)
class TrainedBranch:
    """A branch that trains something."""

    branch: int
    """Which branch it is, from 0, as `Trace.branches` counts them."""
    path: tuple[int, ...]
    """The branch's nodes, from its root to its leaf."""
    trains: tuple[int, ...]
    """The branch's nodes that train here."""
    kind: SampleKind = field(default=SampleKind.CONVERSATION, kw_only=True)


@dataclass(frozen=True)
class TrainingSample(TrainedBranch):
    """One branch as a trainer packs it; the three streams are as long as each other if the nodes' own are."""

    token_ids: list[int]
    mask: list[bool]
    """Whether the token trains here."""
    logprobs: list[float]
    """0.0 for a token that was not sampled, and where a node has too few of them."""

    @property
    def trained(self) -> int:
        return self.mask.count(True)


def branch_paths(trace: NodeGraph) -> list[tuple[int, ...]]:
    """The nodes of each branch, root first; a branch ends at a node without children.

    Raises:
        BrokenGraphError: a node's parent is not one of the nodes before it.
    """
    parents = [node.parent for node in trace.nodes]
    if parents == [None, *range(len(parents) - 1)]:
        return [tuple(range(len(parents)))]
    for number, parent in enumerate(parents):
        if parent is not None and not 0 <= parent < number:
            raise BrokenGraphError(f"node {number} hangs on node {parent}, which does not come before it")
    inner = set(parents)
    return [_path(parents, leaf) for leaf in range(len(parents)) if leaf not in inner]


def training_samples(trace: NodeGraph) -> list[TrainingSample]:
    """The samples of a trace, in the order of its branches; a branch that trains nothing gives none.

    Whether the trace itself is used (its error, its seat) is not asked here.

    Raises:
        BrokenGraphError: as `branch_paths`.
    """
    return [training_sample(trace, found) for found in trained_branches(trace, branch_paths(trace))]


@dataclass(frozen=True)
class Part:
    """A section or a summary of a conversation that was compacted."""

    kind: SampleKind
    number: int
    """From 0, among those of its kind."""
    answers: tuple[int, ...]
    """Its answers' nodes; none if the graph does not hold them as they are recorded."""
    trains: bool
    """Whether it is to train."""
    left: tuple[int, ...] = ()
    """The answers that a fork of it left behind."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"


def recorded_parts(trace: NodeGraph) -> list[Part]:
    """The sections, then the summaries on the trace that its record names."""
    history = HistoryRecord.of(trace.info)
    sections = [(SampleKind.SECTION, at, one.first, one.last, one.left) for at, one in enumerate(history.sections)]
    own = [(at, one.node) for at, one in enumerate(history.summaries) if one.node is not None]
    summaries = [(SampleKind.SUMMARY, at, node, node, ()) for at, node in own]
    parts: list[Part] = []
    for kind, at, first, last, ends in (*sections, *summaries):
        answers = _answers(trace, first, last)
        left = {number for end in ends for number in _answers(trace, first, end)}.difference(answers)
        parts.append(Part(kind, at, answers, history.is_trained(kind, at), tuple(sorted(left))))
    return parts


def untrained_answers(parts: Iterable[Part]) -> set[int]:
    """The nodes of answers of sections and summaries which are not to train, on whatever branch."""
    return {number for part in parts if not part.trains for number in (*part.answers, *part.left)}


def _answers(trace: NodeGraph, first: int, last: int) -> tuple[int, ...]:
    nodes = trace.nodes
    if not 0 <= first <= last < len(nodes) or not nodes[last].sampled:
        return ()
    path = _path([node.parent for node in nodes], last)
    return tuple(number for number in path if number >= first and nodes[number].sampled)  # it may have forked before


def trained_branches(trace: NodeGraph, paths: Sequence[tuple[int, ...]]) -> list[TrainedBranch]:
    """Return what the samples of a trace are made of, by its `branch_paths`; a count of their tokens needs no more."""
    found: list[TrainedBranch] = []
    trained: set[int] = set()
    trains = [any(node.mask) for node in trace.nodes]
    kinds = {node: part.kind for part in recorded_parts(trace) for node in part.answers}
    for branch, path in enumerate(paths):
        masked = [number for number in path if trains[number]]
        here = tuple(number for number in masked if number not in trained)
        trained.update(number for number in here if trace.nodes[number].sampled)
        if here:
            kind = next((kinds[number] for number in here if number in kinds), SampleKind.CONVERSATION)
            found.append(TrainedBranch(branch, path, here, kind=kind))
    return found


def _path(parents: Sequence[int | None], leaf: int) -> tuple[int, ...]:
    path: list[int] = []
    here: int | None = leaf
    while here is not None:
        path.append(here)
        here = parents[here]
    return tuple(reversed(path))


def training_sample(trace: NodeGraph, found: TrainedBranch) -> TrainingSample:
    sample = TrainingSample(found.branch, found.path, found.trains, [], [], [], kind=found.kind)
    for number in found.path:
        node = trace.nodes[number]
        own = _plain(node.mask)
        sample.token_ids.extend(_plain(node.token_ids))
        sample.mask.extend(own if number in found.trains else [False] * len(own))
        sample.logprobs.extend(_spread(_plain(node.logprobs), own) if any(own) else [0.0] * len(own))
    return sample


def _plain(values: Collection[Any]) -> list[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _spread(logprobs: list[float], mask: list[bool]) -> list[float]:
    before = len(mask) - len(logprobs)
    if before >= 0 and all(mask[before:]) and not any(mask[:before]):  # a prompt, then what was sampled
        return [0.0] * before + logprobs
    values = iter(logprobs)
    return [next(values, 0.0) if sampled else 0.0 for sampled in mask]
