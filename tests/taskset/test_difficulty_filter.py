"""The filter keeps what the naive definition keeps, in every format, and says what it did."""

import logging
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from pydantic import ValidationError

from tests.taskset.files import row, tasks, write_csv, write_jsonl, write_parquet

EIGHTHS = st.integers(-2, 10).map(lambda number: number / 8)
RATINGS = st.one_of(st.none(), EIGHTHS, st.floats(allow_infinity=False), st.integers(-2, 3), st.just(math.nan))
BOUNDS = st.tuples(EIGHTHS, EIGHTHS).map(sorted)


def naive(ratings: list[float | None], low: float, high: float, keep_unrated: bool) -> list[int]:
    """Positions that the definition keeps."""
    kept = [keep_unrated if value is None or math.isnan(value) else low <= value <= high for value in ratings]
    return [position for position, keeps in enumerate(kept) if keeps]


def kept(file: Path, **options: Any) -> list[int]:
    return [int(task.data.id or -1) for task in tasks(file, **options)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ratings=st.lists(RATINGS, min_size=1, max_size=30),
    bounds=BOUNDS,
    keep_unrated=st.booleans(),
    nested=st.booleans(),
    rows_per_group=st.integers(1, 40),
)
def test_the_filter_equals_its_definition(
    tmp_path: Path,
    ratings: list[float | None],
    bounds: list[float],
    keep_unrated: bool,
    nested: bool,
    rows_per_group: int,
) -> None:
    def rated(values: list[float | None]) -> list[dict[str, Any]]:
        cells = [{"extra": {"r": value}} if nested else {"r": value} for value in values]
        return [row(number, id=number, **cell) for number, cell in enumerate(cells)]

    low, high = bounds
    expected = naive(ratings, low, high, keep_unrated)
    options: dict[str, Any] = {"min_avg_reward": low, "max_avg_reward": high, "keep_unrated": keep_unrated}
    options["difficulty_key"] = "extra.r" if nested else "r"
    # Arrow infers no column from integers and fractions mixed; a table has one type.
    floats = rated([None if value is None else float(value) for value in ratings])
    files = [write_jsonl(tmp_path / "rows.jsonl", rated(ratings))]
    files.append(write_parquet(tmp_path / "rows.parquet", floats, rows_per_group=rows_per_group))
    if not nested:
        files.append(write_csv(tmp_path / "rows.csv", floats))
    for file in files:
        if expected:
            assert kept(file, **options) == expected
        else:
            with pytest.raises(DatasetError, match="widen min_avg_reward"):
                kept(file, **options)


def test_rows_of_which_only_some_have_the_column_count_as_unrated(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "rows.jsonl", [row(0, id=0), row(1, id=1, r=1), row(2, id=2, r=None)])
    assert kept(file, difficulty_key="r") == [1]
    assert kept(file, difficulty_key="r", keep_unrated=True) == [0, 1, 2]


def test_the_filter_goes_over_the_borders_of_files_and_batches(tmp_path: Path) -> None:
    for part in range(3):
        rows = [row(n, id=n, r=float(n % 10 == 9)) for n in range(part * 1000, part * 1000 + 1000)]
        write_parquet(tmp_path / f"{part}.parquet", rows, rows_per_group=300)
    assert kept(tmp_path, difficulty_key="r", min_avg_reward=0.5) == list(range(9, 3000, 10))


@pytest.mark.parametrize("bad", ["0.5", "", True, [0.5]])
def test_a_difficulty_that_is_no_number_is_refused_by_row(tmp_path: Path, bad: object) -> None:
    rows = [row(0, r=None), row(1, r=bad)]
    for file in (write_jsonl(tmp_path / "a.jsonl", rows), write_parquet(tmp_path / "a.parquet", rows)):
        with pytest.raises(DatasetError, match=r'row 2: column "r" holds .*needs a column of numbers'):
            tasks(file, difficulty_key="r")


def test_a_csv_cell_that_is_no_number_is_refused_by_row(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [row(0, r="0.5"), row(1, r=" 1e-1 "), row(2, r="half")])
    with pytest.raises(DatasetError, match=f"{file} row 3: column \"r\" holds 'half'"):
        tasks(file, difficulty_key="r")


@pytest.mark.parametrize("bad", ["1_0", "\uff11", "0x1", "1,5", "1 0", "-", "1e", "\u0661"])
def test_a_csv_cell_that_only_looks_like_a_number_is_refused_by_row(tmp_path: Path, bad: str) -> None:
    file = write_csv(tmp_path / "a.csv", [row(0, r="0.5"), row(1, r=None), row(2, r=f" {bad} "), row(3, r="half")])
    with pytest.raises(DatasetError) as caught:
        tasks(file, difficulty_key="r")
    assert str(caught.value) == f'{file} row 3: column "r" holds {bad!r}; difficulty_key needs a column of numbers'


def test_what_was_kept_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ratings = [0.0, 0.05, 0.5, 1.0, None, 3.0, -1.0]
    file = write_parquet(tmp_path / "rows.parquet", [row(n, r=value) for n, value in enumerate(ratings)])
    with caplog.at_level(logging.INFO, logger="verifiers.v1.opencode_env.taskset"):
        tasks(file, difficulty_key="r", max_avg_reward=0.5)
    assert f'dataset "{file}": 3 of 7 rows have "r" in [0, 0.5] (1 unrated, dropped)' in caplog.text
    for line in ("< 0                1", "[0.0, 0.1)         2", "[0.9, 1.0]         1", "> 1                1"):
        assert line in caplog.text


def test_an_empty_result_is_an_error_that_shows_the_distribution(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "rows.parquet", [row(n, r=n / 4) for n in range(5)])
    with pytest.raises(DatasetError) as caught:
        tasks(file, difficulty_key="r", min_avg_reward=0.8, max_avg_reward=0.9)
    assert '0 of 5 rows have "r" in [0.8, 0.9]' in str(caught.value)
    assert "[0.5, 0.6)         1 ####" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_avg_reward": 0.2}, "need difficulty_key"),
        ({"max_avg_reward": 0.8}, "need difficulty_key"),
        ({"keep_unrated": True}, "need difficulty_key"),
        ({"difficulty_key": "r", "min_avg_reward": 0.8, "max_avg_reward": 0.2}, "swap them"),
        ({"difficulty_key": "r", "min_avg_reward": math.nan}, "finite number"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_in_the_config(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        OpenCodeTasksetConfig(**options)


@pytest.mark.parametrize("cell", ["1" + "0" * 400, "true", '"0.5"', "[0.5]"])
def test_a_jsonl_cell_that_is_no_number_is_named_by_file_row_and_column(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"question": "?", "answer": "1", "r": {value}}}\n' for value in ("0.5", cell)))
    with pytest.raises(DatasetError, match=r'rows\.jsonl row 2: column "r" holds .*; difficulty_key needs a column of'):
        tasks(path, difficulty_key="r")


def test_a_line_nested_beyond_reason_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    nested = "[" * 100_000 + "]" * 100_000
    path.write_text(f'{{"question": "?", "answer": "1", "x": {nested}}}\n')
    with pytest.raises(DatasetError, match=r"rows\.jsonl row 1: no valid JSON"):
        tasks(path)
