"""What the command says of traces, groups and runs, as `--json` prints it, and every kind of finding."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, computed_field

from opencode_runs.traces.reading import RunReport

SHOWN = 5
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


class Meaning(NamedTuple):
    """What a flaw is, what to do, and whether `--check` fails for it."""

    what: str
    do: str
    fails: bool = True


MEANINGS = {
    Flaw.NO_TOKENS: Meaning(
        "traces without token data, as an evaluation client leaves them",
        "run with the training client, in front of a vLLM engine: vf-eval … --client.type train "
        "--client.base-url http://HOST:8000/v1 -m MODEL",
    ),
    Flaw.FORKS: Meaning(
        "a conversation's history changed: what follows trains in another context, and a trainer pays twice",
        "mend what changes the history (compaction, a plugin, a prompt that moves), or accept it: --allow forks",
    ),
    Flaw.GRAPH: Meaning("a node hangs on none before it", "make the run again: this trace was damaged"),
    Flaw.TYPES: Meaning(
        "fields hold other types than verifiers writes, such as a number as text", "repair or remove these traces"
    ),
    Flaw.REPEATED: Meaning(
        "an episode, a trace, a conversation, an answer or a call stands twice: it would train twice",
        "remove the copies, or make the run again",
    ),
    Flaw.CALLS: Meaning(
        "answers and calls of the model do not match one another", "make the run again: this trace was damaged"
    ),
    Flaw.USAGE: Meaning(
        "a call counted other tokens than its branch holds: some were cut, added or moved",
        "make the run again: this trace was damaged",
    ),
    Flaw.SETTINGS: Meaning(
        "answers of another model, or sampled otherwise, than their seat says",
        "see what changes the calls on their way; make the run again",
    ),
    Flaw.MIXED: Meaning(
        "rollouts of one group are not of one task, model and sampling: their rewards do not compare",
        "make the group again with one configuration",
    ),
    Flaw.LENGTHS: Meaning(
        "a message has not one mask entry for each token, or other streams of another length",
        "make the run again with a released verifiers",
    ),
    Flaw.MASK: Meaning(
        "the tokens that train are not the end of their answer", "make the run again with a released verifiers"
    ),
    Flaw.TOKEN_IDS: Meaning(
        "token ids that no vocabulary has, or not that of --vocab-size",
        "see that engine, tokenizer and trainer have the same model; make the run again",
    ),
    Flaw.LOGPROBS: Meaning(
        "not one logprob for each trained token: a trainer reads the missing ones as 0, a probability of 1",
        "let the engine return the logprob of every sampled token, and make the run again",
    ),
    Flaw.LOGPROB_VALUES: Meaning(
        "logprobs that are not valid: NaN, infinite, above 0, or vLLM's -9999",
        "look at the engine: its sampler or its precision is wrong",
    ),
    Flaw.LOGPROB_ZEROS: Meaning(
        "every logprob of a trace, or of a long answer, is 0, as if each token had been certain",
        "look at the engine: it returns none, or processed ones at temperature 0",
    ),
    Flaw.UNTRAINED: Meaning(
        "turns of the model that train nowhere", "see why the engine returned no tokens for them; make the run again"
    ),
    Flaw.NOT_SAMPLED: Meaning(
        "messages that the model did not sample are marked for training, in every branch that holds them",
        "make the run again: masks belong to sampled messages only",
    ),
    Flaw.TOO_LONG: Meaning(
        "branches longer than --max-tokens: a trainer cuts them off and says nothing",
        "lower --env.agent.max-total-tokens (or the engine's max_model_len), or raise the trainer's seq_len",
    ),
    Flaw.NO_REWARD: Meaning(
        "traces that would train without any reward: a trainer reads 0",
        "give the trace its reward, or let its seat not train (--env.include-sub-llm-in-trajectory false)",
    ),
    Flaw.REWARD_VALUES: Meaning(
        "rewards that are not finite numbers, alone or summed, or missing beside others", "mend the rubric; score again"
    ),
    Flaw.ERROR_REWARD: Meaning(
        "failed traces that carry a reward: nothing tells it from one that was earned",
        "leave them out, and do not score a rollout that failed",
    ),
    Flaw.STANDING: Meaning(
        "traces or episodes that are ok and failed at once", "see which it is: what failed must not train"
    ),
    Flaw.UNREADABLE: Meaning("lines that hold no episode", "repair or remove these lines"),
    Flaw.FAILED: Meaning(
        "traces that failed: they never train", "see their errors; many of them waste the run", fails=False
    ),
    Flaw.NO_SPREAD: Meaning(
        "groups whose rewards are all equal: every advantage is 0, so they teach nothing",
        "choose tasks of the band that teaches (opencode-difficulty recommend), or larger groups",
        fails=False,
    ),
    Flaw.INCOMPLETE: Meaning(
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
        if len(finding.places) < SHOWN:
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
