"""The data of one task: what travels to workers and lands on the trace.

It is JSON-safe and complete in itself; nothing here refers to a file of the machine that loaded it. The
answer and the verify commands are part of it and never enter the sandbox before the agent has ended.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Self, TypeVar

import verifiers.v1 as vf
from opencode_rubrics.code_problem import CodeTests
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.task_tests import StagedTests
from opencode_runs.errors import BadInputError
from opencode_runs.turns.kept import KeptTurn, TurnRow, kept_turns, read_turn, turn_places
from pydantic import Field, JsonValue, ValidationError
from verifiers.v1.task import TaskData

from opencode_env.errors import DatasetError
from opencode_env.taskset.task_folder import TaskFolder


class OpenCodeTaskData(vf.TaskData):
    """A question with the means to prepare the sandbox for it and to check the answer."""

    row_key: str | None = None
    """The row's identity: its id, or a hash of its content without its position, instructions and `info`."""
    answer: str | None = None
    """The right answer; numbers in decimal notation."""
    options: dict[str, str] | None = None
    """The options of a multiple-choice question, by their letters."""
    setup: list[str] = Field(default_factory=list)
    """Shell commands that prepare the sandbox before the agent starts."""
    verify: list[str] = Field(default_factory=list)
    """Shell commands that check the agent's work after it ended."""
    setup_timeout: float | None = None
    """Seconds per setup command; `None`: the task config's `setup_timeout`."""
    rubric: dict[str, JsonValue] | None = None
    """The configuration of the row's own rubric; `None`: the task config's, or the one that fits the row."""
    verify_timeout: float | None = None
    """Seconds per verify command; `None`: the rubric's `command_timeout`."""
    code_tests: CodeTests | None = None
    """The tests of a programming problem, those that were drawn of them."""
    swe: SweProblem | None = None
    """A software engineering task: how its work directory is made, and the suite that judges it."""
    tests: StagedTests | None = None
    """The test script of a task directory, which scores it."""
    folder: TaskFolder | None = None
    """How the sandbox of a task directory is made ready."""
    kept_turn: TurnRow | None = None
    """The kept turn that rollouts of the task go on from."""
    info: dict[str, JsonValue] = Field(default_factory=dict)
    """All other columns of the row."""

    @property
    def shortened(self) -> bool:
        """Whether these are a trace's, which lack files."""
        return self.swe is not None and self.swe.shortened

    def recorded(self) -> Self:
        """The data as they stand on a trace; the files of a repository, by their digest."""
        return self if self.swe is None else self.model_copy(update={"swe": self.swe.recorded()})


Data = TypeVar("Data", bound=TaskData)


def named_turns(dataset: str | Path | None, kind: type[Data]) -> list[Data] | None:
    """The rows, of a kind that has a field `kept_turn`, of a folder of kept turns or a file that names some, those that
    can be restored; None where the dataset is another one. A `DatasetError` where one cannot be read, or none can be
    restored."""
    if dataset is None:
        return None
    place = Path(dataset)
    try:
        if place.is_dir() and turn_places(place):
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
