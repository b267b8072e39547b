"""Which kept turns become tasks: by their number, by how their rollouts ended, by how far continuations differ."""

import statistics
from bisect import insort
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel

from opencode_runs.command import NothingUsableError, number, replacing, short, table
from opencode_runs.turns.kept import KeptTurn, TurnRow
from opencode_runs.turns.tree import Rollout, Turns


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


class Listing(BaseModel):
    """Kept turns, and where the dataset of them was written."""

    turns: list[ListedTurn]
    output: Path | None = None


def spreads(rollouts: Iterable[Rollout]) -> dict[tuple[str, int], float]:
    """The standard deviation of the rewards of the continuations of each turn that has at least two with a reward."""
    rewards: dict[tuple[str, int], list[float]] = {}
    for one in rollouts:
        if one.origin is not None and one.reward is not None:
            rewards.setdefault((one.origin.trace_id, one.origin.turn), []).append(one.reward)
    return {turn: statistics.pstdev(values) for turn, values in rewards.items() if len(values) > 1}


def listing(found: Turns, turns: Sequence[KeptTurn], output: Path | None = None) -> Listing:
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
    return Listing(turns=rows, output=output)


def listing_text(answer: Listing, rows: int | None) -> str:
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
    found: Turns, *, numbers: list[int] | None, every: int | None, below: float | None, spread: float | None
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
