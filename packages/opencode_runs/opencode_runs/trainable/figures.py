"""What the command says of traces, groups and runs; `--json` prints exactly this."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, computed_field

from opencode_runs.traces.reading import RunReport
from opencode_runs.trainable.findings import Finding, Flaw

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
    """Traces that train."""
    mean_reward: float | None
    spread: float | None
    """Largest less smallest reward; 0 teaches nothing."""


class Summary(BaseModel):
    episodes: int = 0
    traces: int = 0
    trained_traces: int = 0
    branches: int = 0
    samples: int = 0
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
    runs: list[RunReport]
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
    named = ("branches", "samples", "prompt_tokens", "trained_tokens", "logprobs", "forks")
    return Summary(
        episodes=episodes,
        traces=len(traces),
        trained_traces=len(used),
        groups=len(groups),
        groups_with_spread=sum(bool(group.spread) for group in groups),
        unused=Counter(trace.unused_because for trace in traces if trace.unused_because is not None),
        **{name: sum(getattr(trace, name) or 0 for trace in used) for name in named},
    )
