"""Kept turns as a dataset: a folder of them, or a `.jsonl` file that names some.

Invariant: a row is the task that the turn was kept of, with its own data, and names the turn by folder and digest, so
that whoever plays it reads the same turn or refuses it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from opencode_runs.command import BadInputError
from opencode_runs.turns.kept import KeptTurn, TurnRow, holds_kept_turns, kept_turns, read_turn
from pydantic import ValidationError
from verifiers.v1.task import TaskData

from opencode_env.taskset.errors import DatasetError

Data = TypeVar("Data", bound=TaskData)


def named_turns(dataset: str | Path | None, kind: type[Data]) -> list[Data] | None:
    """The rows, of a kind that has a field `kept_turn`, of a folder of kept turns or a file that names some, those that
    can be restored; None where the dataset is another one.

    Raises:
        DatasetError: one of them cannot be read, or none can be restored.
    """
    if dataset is None:
        return None
    place = Path(dataset)
    try:
        if place.is_dir() and holds_kept_turns(place):
            found = list(kept_turns(place.absolute()))
        elif place.is_file() and (rows := list(_rows(place))):
            found = [_named(place, row) for row in rows]
        else:
            return None
        offered = [turn for turn in found if turn.unrestorable is None]
        if not offered:
            raise DatasetError(f"{place}: none of its {len(found)} kept turns can be restored: {found[0].unrestorable}")
        return [_data(turn, kind) for turn in offered]
    except BadInputError as error:
        raise DatasetError(str(error)) from error


def _rows(place: Path) -> Iterator[TurnRow]:
    """The rows of a file that names kept turns; none of another."""
    with place.open("rb") as file:
        if place.suffix != ".jsonl" or b'"kept_turn"' not in file.readline(1 << 16):
            return
        file.seek(0)
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield TurnRow.model_validate_json(line)
            except ValidationError as error:
                raise DatasetError(f"{place} row {number}: names no kept turn: {error.errors()[0]['msg']}") from error


def _named(place: Path, row: TurnRow) -> KeptTurn:
    turn = read_turn(place.parent / row.kept_turn)
    if turn.digest != row.digest:
        raise DatasetError(f"{place}: kept turn {row.kept_turn} is another one than the row names")
    return turn


def _data(turn: KeptTurn, kind: type[Data]) -> Data:
    try:
        data = kind.model_validate(turn.row)
    except ValidationError as error:
        raise DatasetError(f"kept turn {turn.place}: its task is not of this taskset: {error}") from error
    named = TurnRow(kept_turn=str(turn.place), digest=turn.digest)
    key = f"{turn.task_key}@{turn.place.parent.name[:12]}.{turn.turn}"
    name = "row_key" if "row_key" in kind.model_fields else "id"
    return data.model_copy(update={"kept_turn": named, name: key})
