"""A trace's samples as prime-rl builds them and as `opencode_runs.trainable` does: the same tokens, or a difference."""

from collections.abc import Sequence
from dataclasses import dataclass

from opencode_env.cli_agent.traces import AnyTrace
from opencode_runs.trainable.samples import training_samples
from prime_rl.orchestrator.trajectories import trace_to_samples


@dataclass
class Counts:
    """What the traces of one seat give."""

    traces: int = 0
    samples: int = 0
    tokens: int = 0
    """Prompt and trained, of all samples."""
    trained: int = 0
    unknown: int = 0
    """Samples that are not, token for token, one call of the engine: its prompt and what it sampled."""
    differences: int = 0
    """Traces of which the two sides say something else."""


def count(traces: Sequence[AnyTrace], sequences: set[tuple[int, ...]]) -> Counts:
    """Build and compare the samples of traces."""
    counts = Counts()
    for trace in traces:
        theirs, ours = trace_to_samples(trace), training_samples(trace)
        counts.traces += 1
        counts.samples += len(theirs)
        counts.tokens += sum(len(sample.token_ids) for sample in theirs)
        counts.trained += sum(map(sum, (sample.mask for sample in theirs)))
        counts.unknown += sum(tuple(sample.token_ids) not in sequences for sample in theirs)
        streams = [(list(sample.token_ids), list(sample.mask), list(sample.logprobs)) for sample in theirs]
        counts.differences += streams != [(sample.token_ids, sample.mask, sample.logprobs) for sample in ours]
    return counts
