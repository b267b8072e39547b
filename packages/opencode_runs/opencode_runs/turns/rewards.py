"""What runs say of rollouts: their rewards, and from which kept turn they went on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AliasPath, BaseModel, Field, WrapValidator

from opencode_runs.difficulty.attempt import Failure, tries
from opencode_runs.traces.errors import BadInputError
from opencode_runs.traces.reading import Reading
from opencode_runs.traces.record import EpisodeRecord, TraceRecord, if_ours
from opencode_runs.traces.runs import find_trace_files
from opencode_runs.turns.kept import KeptTurn, Origin, holds_kept_turns, kept_turns


class BranchOrigin(Origin):
    """The kept turn that a rollout went on from, as its trace says it."""

    same_request: bool = True
    """Whether the agent went on with the request that the turn had waited for."""
    forked: bool = False
    """Whether the conversation had forked by then."""


BranchedFrom = Annotated[BranchOrigin | None, WrapValidator(if_ours)]
"""The field of a trace that says what it went on from; None also for what is not ours."""


class BranchTrace(TraceRecord):
    id: str = ""
    branch: BranchedFrom = Field(None, validation_alias=AliasPath("info", "branch"))


class BranchEpisode(EpisodeRecord):
    traces: tuple[BranchTrace, ...]


class Rollout(BaseModel):
    trace_id: str
    task: str
    """How the task is called."""
    origin: Origin | None
    """Where it branched off; None for one from the task's beginning, and for one that was only resumed."""
    reward: float | None
    """None where it failed or was not scored."""
    failure: str | None
    """Why there is no reward."""

    @classmethod
    def of(cls, trace_id: str, task: str, branch: BranchedFrom, reward: float | None, failure: str | None) -> "Rollout":
        """A rollout as the tree of kept turns counts it."""
        origin = branch if branch is not None and not branch.resumed else None
        if origin is not None and not origin.same_request:
            reward, failure = None, "the agent did not go on with the kept turn's request"
        return cls(trace_id=trace_id, task=task, origin=origin, reward=reward, failure=failure)


def read_rollouts(runs: Sequence[Path]) -> tuple[dict[str, Rollout], list[str]]:
    """The rollouts of runs by trace id, and what whoever named the runs should know.

    Raises:
        BadInputError: a run does not exist or cannot be read.
    """
    reading = Reading.of(BranchEpisode)
    found: dict[str, Rollout] = {}
    for _, episode in reading.episodes(find_trace_files(list(runs))):
        called = episode.task_id or episode.task_name or episode.task or ""
        for trace, outcome in tries(episode):
            if isinstance(trace, BranchTrace):
                reward, failure = (None, outcome.cause) if isinstance(outcome, Failure) else (outcome.reward, None)
                one = Rollout.of(trace.id, called, trace.branch, reward, failure)
                found[one.trace_id] = one
    return found, [line for run in reading.runs for line in run.warnings()]


class Turns(BaseModel):
    """The kept turns that a path names, with the rewards of their rollouts where these are known."""

    turns: list[KeptTurn]
    rollouts: dict[str, Rollout]
    warnings: list[str]

    def reward(self, turn: KeptTurn) -> float | None:
        """What the rollout that kept it came to; None where that is not known."""
        rollout = self.rollouts.get(turn.trace_id)
        return None if rollout is None else rollout.reward


def find_turns(path: Path, runs: Sequence[Path] = ()) -> Turns:
    """The kept turns of a folder of them, or of the rollouts of a run whose configuration names that folder.

    Args:
        path: either.
        runs: further runs, for the rewards of rollouts.

    Raises:
        BadInputError: there are none, or something cannot be read.
    """
    if holds_kept_turns(path):
        rollouts, warnings = read_rollouts(runs)
        return Turns(turns=list(kept_turns(path)), rollouts=rollouts, warnings=warnings)
    rollouts, warnings = read_rollouts([path])
    more, told = read_rollouts(runs)
    folder = find_trace_files([path])[0].settings.keep
    if folder is None or not holds_kept_turns(folder):
        where = "its configuration names no --env.turns.keep" if folder is None else f'there are none in "{folder}"'
        raise BadInputError(f'run "{path}" kept no turns: {where}; name the folder of kept turns itself')
    turns = [turn for turn in kept_turns(folder) if turn.trace_id in rollouts]
    return Turns(turns=turns, rollouts=rollouts | more, warnings=warnings + told)
