"""What runs say of kept turns: the rewards of the rollouts that went on from them, and the value of each turn."""

import math
import statistics
from bisect import insort
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel

from opencode_runs.console_command import drawing, number, replacing, short, table
from opencode_runs.difficulty.rate import Failure, credible_interval, tries
from opencode_runs.errors import BadInputError, NothingUsableError
from opencode_runs.traces.reading import TraceReader, find_trace_files, lines_of
from opencode_runs.traces.record import BranchOrigin, Origin
from opencode_runs.turns.kept import KeptTurn, TurnRow, kept_turns, turn_places


class TreeRollout(BaseModel):
    trace_id: str
    task: str
    origin: Origin | None
    """Where it branched off; None for one from the task's beginning, and for one that was only resumed."""
    reward: float | None
    """None where it failed or was not scored."""
    failure: str | None

    @classmethod
    def of(
        cls, trace_id: str, task: str, branch: BranchOrigin | None, reward: float | None, failure: str | None
    ) -> "TreeRollout":
        """A rollout as the tree of kept turns counts it."""
        origin = branch if branch is not None and not branch.resumed else None
        if origin is not None and not origin.same_request:
            reward, failure = None, "the agent did not go on with the kept turn's request"
        return cls(trace_id=trace_id, task=task, origin=origin, reward=reward, failure=failure)


def read_rollouts(runs: Sequence[Path]) -> tuple[dict[str, TreeRollout], list[str]]:
    """The rollouts of runs by trace id, and what whoever named the runs should know.

    Raises:
        BadInputError: a run does not exist or cannot be read.
    """
    reading = TraceReader(lines_of)
    found: dict[str, TreeRollout] = {}
    for _, episode in reading.episodes(find_trace_files(runs, "eval")):
        called = episode.task_id or episode.task_name or episode.task or ""
        for trace, outcome in tries(episode):
            if trace is not None:
                reward, failure = (None, outcome.cause) if isinstance(outcome, Failure) else (outcome.reward, None)
                one = TreeRollout.of(trace.id, called, trace.branch, reward, failure)
                found[one.trace_id] = one
    return found, [line for run in reading.runs for line in run.warnings()]


class FoundTurns(BaseModel):
    """The kept turns that a path names, with the rewards of their rollouts where these are known."""

    turns: list[KeptTurn]
    rollouts: dict[str, TreeRollout]
    warnings: list[str]

    def reward(self, turn: KeptTurn) -> float | None:
        """Return what the rollout that kept it came to; None where that is not known."""
        rollout = self.rollouts.get(turn.trace_id)
        return None if rollout is None else rollout.reward


def find_turns(path: Path, runs: Sequence[Path] = ()) -> FoundTurns:
    """The kept turns of a folder of them, or of the rollouts of a run whose configuration names that folder.

    Args:
        path: either.
        runs: further runs, for the rewards of rollouts.

    Raises:
        BadInputError: there are none, or something cannot be read.
    """
    if turn_places(path):
        rollouts, warnings = read_rollouts(runs)
        return FoundTurns(turns=list(kept_turns(path)), rollouts=rollouts, warnings=warnings)
    rollouts, warnings = read_rollouts([path])
    more, told = read_rollouts(runs)
    folder = find_trace_files([path], "eval")[0].settings.keep
    if folder is None or not turn_places(folder):
        where = "its configuration names no --env.turns.keep" if folder is None else f'there are none in "{folder}"'
        raise BadInputError(f'run "{path}" kept no turns: {where}; name the folder of kept turns itself')
    turns = [turn for turn in kept_turns(folder) if turn.trace_id in rollouts]
    return FoundTurns(turns=turns, rollouts=rollouts | more, warnings=warnings + told)


CREDIBLE = 0.95


class TurnValue(BaseModel):
    """Holds what went on from one kept turn."""

    turn: int
    rewards: list[float]
    failed: int
    """Continuations without a reward."""
    value: float | None
    low: float | None
    high: float | None
    continuations: list["RolloutValues"]
    """The continuations from which others went on."""


class RolloutValues(BaseModel):
    trace_id: str
    task: str
    reward: float | None
    """None where its run was not named, or where it failed."""
    turns: list[TurnValue]


class Tree(BaseModel):
    """The rollouts that others went on from, each with what went on from its turns."""

    trunks: list[RolloutValues]


def tree_of(rollouts: dict[str, TreeRollout]) -> Tree:
    """The values of all turns that rollouts went on from; a trunk is what itself went on from nothing that is known."""
    branches: dict[str, dict[int, list[TreeRollout]]] = {}
    for one in rollouts.values():
        if one.origin is not None:
            branches.setdefault(one.origin.trace_id, {}).setdefault(one.origin.turn, []).append(one)

    def values(trace_id: str) -> RolloutValues:
        known = rollouts.get(trace_id)
        turns = sorted(branches.get(trace_id, {}).items())
        called = known.task if known is not None else next((one.task for _, some in turns for one in some), "")
        return RolloutValues(
            trace_id=trace_id, task=called, reward=None if known is None else known.reward,
            turns=[
                _value(turn, some, [values(one.trace_id) for one in some if one.trace_id in branches])
                for turn, some in turns
            ],
        )  # fmt: skip

    roots = [name for name in branches if name not in rollouts or rollouts[name].origin is None]
    return Tree(trunks=[values(name) for name in roots])


def _value(turn: int, some: Sequence[TreeRollout], continued: list[RolloutValues]) -> TurnValue:
    rewards = [one.reward for one in some if one.reward is not None]
    low, high = interval(rewards)
    return TurnValue(
        turn=turn, rewards=rewards, failed=len(some) - len(rewards),
        value=statistics.fmean(rewards) if rewards else None, low=low, high=high, continuations=continued,
    )  # fmt: skip


def interval(rewards: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the bounds between which the mean lies with 95 %; None where the rewards do not tell.

    Rewards between 0 and 1 are taken for shares of passes, with Jeffreys' prior: exact where all are 0 or 1, else too
    wide. For others it is the normal interval of at least two.
    """
    if not rewards:
        return None, None
    if all(0.0 <= one <= 1.0 for one in rewards):
        return credible_interval(sum(rewards), len(rewards), CREDIBLE)
    if len(rewards) < 2:
        return None, None
    half = 1.96 * statistics.stdev(rewards) / math.sqrt(len(rewards))
    return statistics.fmean(rewards) - half, statistics.fmean(rewards) + half


def tree_text(tree: Tree) -> str:
    return "\n".join(line for trunk in tree.trunks for line in _lines(trunk, ""))


def _lines(rollout: RolloutValues, margin: str) -> Iterable[str]:
    reward = "" if rollout.reward is None else f", reward {rollout.reward:.2f}"
    yield f"{margin}{rollout.trace_id[:12]} ({short(rollout.task)}{reward})"
    for turn in rollout.turns:
        bounds = "" if turn.low is None else f"  [{turn.low:.2f}, {turn.high:.2f}]"
        value = "no reward" if turn.value is None else f"{turn.value:.2f}{bounds}"
        failed = f", {turn.failed} failed" if turn.failed else ""
        yield f"{margin}  turn {turn.turn:>3}  {value}  of {len(turn.rewards)} continuations{failed}"
        for one in turn.continuations:
            yield from _lines(one, f"{margin}      ")


def write_png(tree: Tree, path: Path) -> None:
    """Draw the value of each turn of each trunk with its interval.

    Raises:
        BadInputError: matplotlib is not installed, or the file cannot be written.
    """
    with drawing(path) as axes:
        for trunk in tree.trunks:
            points = [(one.turn, one.value, one.low, one.high) for one in trunk.turns if one.value is not None]
            below = [0.0 if low is None else max(0.0, value - low) for _, value, low, _ in points]
            above = [0.0 if high is None else max(0.0, high - value) for _, value, _, high in points]
            label = f"{short(trunk.task)} {trunk.trace_id[:6]}"
            at, values = [turn for turn, *_ in points], [value for _, value, *_ in points]
            axes.errorbar(at, values, [below, above], marker="o", capsize=3, label=label)
        axes.set_xlabel("turn")
        axes.set_ylabel("mean reward of what went on from it")
        axes.legend(fontsize="small")


class ListedTurn(BaseModel):
    folder: Path
    trace_id: str
    task: str
    turn: int
    seconds: float
    held_seconds: float
    megabytes: float
    unrestorable: str | None
    reward: float | None
    """Reward of the rollout that kept it, where that is known."""
    spread: float | None
    """Standard deviation of its continuations' rewards; None below two of them."""


class TurnListing(BaseModel):
    """Kept turns, and where the dataset of them was written."""

    turns: list[ListedTurn]
    output: Path | None = None


def spreads(rollouts: Iterable[TreeRollout]) -> dict[tuple[str, int], float]:
    """The standard deviation of the rewards of the continuations of each turn that has at least two with a reward."""
    rewards: dict[tuple[str, int], list[float]] = {}
    for one in rollouts:
        if one.origin is not None and one.reward is not None:
            rewards.setdefault((one.origin.trace_id, one.origin.turn), []).append(one.reward)
    return {turn: statistics.pstdev(values) for turn, values in rewards.items() if len(values) > 1}


def listing(found: FoundTurns, turns: Sequence[KeptTurn], output: Path | None = None) -> TurnListing:
    """Some of the kept turns that were found, with what is known of them."""
    spread = spreads(found.rollouts.values())
    rows = [
        ListedTurn(
            folder=turn.place, trace_id=turn.trace_id, task=turn.task_key, turn=turn.turn, seconds=turn.seconds,
            held_seconds=turn.held_seconds, megabytes=turn.file_bytes / 1e6, unrestorable=turn.unrestorable,
            reward=found.reward(turn), spread=spread.get((turn.trace_id, turn.turn)),
        )
        for turn in turns
    ]  # fmt: skip
    return TurnListing(turns=rows, output=output)


def listing_text(answer: TurnListing, rows: int | None) -> str:
    """The listing as a table of at most so many rows."""
    header = ("rollout", "task", "turn", "seconds", "held ms", "MB", "reward", "spread", "restorable")
    lines = [
        (
            one.trace_id[:12], short(one.task), str(one.turn), f"{one.seconds:.1f}", f"{1000 * one.held_seconds:.0f}",
            f"{one.megabytes:.1f}", number(one.reward, ".2f", ""), number(one.spread, ".2f", ""),
            one.unrestorable or "yes",
        )
        for one in answer.turns[:rows]
    ]  # fmt: skip
    offered = sum(one.unrestorable is None for one in answer.turns)
    end = f"{len(answer.turns):,} kept turns, {offered:,} can be restored"
    if answer.output is not None:
        end += f"; written to {answer.output}: vf-eval opencode-env --env.taskset.dataset {answer.output} -r 8"
    return f"{table(header, lines)}\n{end}"


def choose(
    found: FoundTurns, *, numbers: list[int] | None, every: int | None, below: float | None, spread: float | None
) -> list[KeptTurn]:
    """The restorable kept turns that are wanted; what is None leaves none out.

    Args:
        numbers: of turns, from 1; negative ones count from the last kept turn of each rollout, which is -1.
        every: turns whose number is a multiple of it.
        below: turns of rollouts with a reward below it.
        spread: turns whose continuations' rewards have at least this standard deviation, the widest first.

    Raises:
        NothingUsableError: there is none; the message says what left the last of them out.
    """
    turns = [turn for turn in found.turns if turn.unrestorable is None]
    if not turns:
        raise NothingUsableError("no kept turn can be restored: see opencode-turns list for the reasons")
    if numbers is not None:
        kept: dict[str, list[int]] = {}
        for one in turns:
            insort(kept.setdefault(one.trace_id, []), one.turn)
        places = [kept[one.trace_id].index(one.turn) - len(kept[one.trace_id]) for one in turns]
        turns = [one for one, place in zip(turns, places, strict=True) if one.turn in numbers or place in numbers]
        _require(turns, f"no rollout kept a turn {', '.join(map(str, numbers))}")
    if every is not None:
        turns = [one for one in turns if one.turn % every == 0]
        _require(turns, f"no turn that was kept is a multiple of {every}")
    if below is not None:
        known = [one for one in turns if found.reward(one) is not None]
        _require(known, "no reward of these rollouts is known: name their run, or add it with --run")
        turns = [one for one in known if (found.reward(one) or 0.0) < below]
        _require(turns, f"no rollout had a reward below {below:g}")
    if spread is not None:
        widths = spreads(found.rollouts.values())
        _require(widths, "no turn has two continuations with a reward: evaluate some, and name that run with --run")
        turns = [one for one in turns if widths.get((one.trace_id, one.turn), -1.0) >= spread]
        turns.sort(key=lambda one: -widths[one.trace_id, one.turn])
        _require(turns, f"no turn's continuations differ by {spread:g}")
    return turns


def _require(left: object, otherwise: str) -> None:
    if not left:
        raise NothingUsableError(otherwise)


def write_dataset(turns: Iterable[KeptTurn], path: Path) -> None:
    """Write a dataset for `--env.taskset.dataset`: one row for each kept turn, which names it by place and digest.

    Raises:
        BadInputError: it cannot be written.
    """
    rows = (TurnRow(kept_turn=str(turn.place.resolve()), digest=turn.digest) for turn in turns)
    with replacing([path]) as (temporary,):
        temporary.write_text("".join(f"{row.model_dump_json()}\n" for row in rows))
