"""The format of a kept turn: what is written is read again, and what is not whole is never read."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from opencode_runs.errors import BadInputError
from opencode_runs.turns.kept import MANIFEST, ROW, KeptTurn, kept_turns, read_turn, turn_places


def made(turn: int = 3, **changed: object) -> KeptTurn:
    """A manifest."""
    given = {
        "digest": "d" * 64,
        "turn": turn,
        "trace_id": "t1",
        "session_id": "ses_1",
        "task_key": "k",
        "task_hash": "h",
        "env": "opencode-env",
        "versions": {"opencode": "1.18.33"},
        "model": "m",
        "sampling": {"temperature": 1.0},
        "runtime": "confined",
        "seconds": 1.5,
        "held_seconds": 0.01,
        "file_bytes": 10,
        "settings": "s",
        **changed,
    }
    return KeptTurn.model_validate(given)


def write_kept(folder: Path, turn: int = 3, row: str = "{}", **changed: object) -> Path:
    """A kept turn in a rollout's folder, without files and state; its place."""
    place = folder / f"{turn:04d}"
    place.mkdir(parents=True, exist_ok=True)
    (place / ROW).write_text(row)
    made(turn, **changed).write(place)
    return place


def test_a_folder_that_goes_while_it_is_listed_holds_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a driver removes the oldest turns, or another try takes a claim's folder away."""
    for turn in (1, 2):
        write_kept(tmp_path / "t1", turn)
    (tmp_path / "t1" / ".claim-1" / ".0003").mkdir(parents=True)
    scan = os.scandir

    def scandir(folder: Any = ".") -> Any:
        if isinstance(folder, Path) and folder.name in ("0001", ".claim-1"):
            shutil.rmtree(folder)
        return scan(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [place.name for place in turn_places(tmp_path / "t1")] == ["0002"]


def test_what_is_written_is_read_in_the_order_of_turns(tmp_path: Path) -> None:
    for turn in (2, 10, 1):
        write_kept(tmp_path / "t1", turn, '{"prompt": "p"}')
    found = list(kept_turns(tmp_path))
    assert [one.turn for one in found] == [1, 2, 10]
    assert found[0] == made(1, place=tmp_path / "t1" / "0001")
    assert found[0].row == {"prompt": "p"}
    assert [one.turn for one in kept_turns(tmp_path / "t1")] == [1, 2, 10]
    assert [one.turn for one in kept_turns(tmp_path / "t1" / "0010")] == [10]
    assert turn_places(tmp_path)


def test_a_folder_without_its_name_is_never_read(tmp_path: Path) -> None:
    for name in ("t1/.0001", ".t2/0001"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        made().write(folder)
    assert list(kept_turns(tmp_path)) == []
    assert not turn_places(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not a kept turn: No such file"),
        ("{", "is not a manifest of a kept turn"),
        ('{"format": 2}', "is not a manifest of a kept turn: format"),
        ("x" * (1 << 21), "is over 1048576 bytes"),
    ],
)
def test_what_is_no_kept_turn_is_refused_with_its_place(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(BadInputError, match=said) as refused:
        read_turn(tmp_path)
    assert str(tmp_path) in str(refused.value)
