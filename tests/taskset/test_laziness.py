"""Nothing is read or built before it is needed."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import verifiers.v1 as vf
from opencode_env.taskset import DatasetError

from tests.taskset.files import row, tasks, taskset, write_jsonl, write_parquet


def test_a_limit_never_reaches_a_broken_line_behind_it(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [row(n) for n in range(5)])
    file.write_text(file.read_text() + "{ broken\n")
    loaded = taskset(file)
    assert len(list(loaded.select(vf.SelectConfig(limit=5)))) == 5
    with pytest.raises(DatasetError, match="row 6"):
        list(loaded)


def test_a_limit_never_reaches_the_next_file(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [row(1)])
    (tmp_path / "b.jsonl").write_text("{ broken\n")
    assert len(list(taskset(tmp_path).take(1))) == 1


@pytest.mark.parametrize("rating", [None, "r"])
def test_a_limit_never_reads_a_row_group_behind_it(tmp_path: Path, rating: str | None) -> None:
    rows = [row(n, r=1.0, filler=f"{n:06}" * 50) for n in range(2000)]
    file = write_parquet(tmp_path / "tasks.parquet", rows, rows_per_group=1000)
    _break_column(file, group=1, column="filler")
    assert len(list(taskset(file, difficulty_key=rating).take(5))) == 5
    with pytest.raises(DatasetError, match="no readable Parquet file"):
        tasks(file)


def test_row_groups_that_the_filter_drops_are_not_read(tmp_path: Path) -> None:
    rows = [row(n, r=float(n >= 1000), filler=f"{n:06}" * 50) for n in range(2000)]
    file = write_parquet(tmp_path / "tasks.parquet", rows, rows_per_group=1000)
    _break_column(file, group=0, column="filler")
    assert len(tasks(file, difficulty_key="r", min_avg_reward=0.5)) == 1000


def test_lines_that_the_filter_drops_are_not_built(tmp_path: Path) -> None:
    # No question: a task could not be made of the first row.
    file = write_jsonl(tmp_path / "tasks.jsonl", [{"r": 0.1}, row(1, r=0.9)])
    assert len(tasks(file, difficulty_key="r", min_avg_reward=0.5)) == 1


def test_an_unfinished_iteration_closes_its_file(tmp_path: Path) -> None:
    # ResourceWarnings are errors in this suite.
    for file in (
        write_jsonl(tmp_path / "tasks.jsonl", [row(n) for n in range(9)]),
        write_parquet(tmp_path / "tasks.parquet", [row(n) for n in range(9)]),
    ):
        rows = iter(taskset(file))
        assert len(list(islice(rows, 2))) == 2
        del rows


@pytest.mark.usefixtures("programs")
def test_a_worker_that_gets_its_data_over_the_wire_imports_no_dataset_library() -> None:
    check = (
        "import sys, opencode_env.taskset\n"
        "assert not {'datasets', 'pandas', 'pyarrow'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def _break_column(file: Path, *, group: int, column: str) -> None:
    """Overwrite the stored data of one column chunk."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        chunks = opened.metadata.row_group(group)
        chunk = next(c for c in map(chunks.column, range(chunks.num_columns)) if c.path_in_schema == column)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        size = chunk.total_compressed_size
    with file.open("r+b") as raw:
        raw.seek(start)
        raw.write(b"\xff" * size)
