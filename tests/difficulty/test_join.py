"""Writing figures back: every row once, nothing dropped unseen, nothing half written."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opencode_env.taskset import OpenCodeTaskset, OpenCodeTasksetConfig
from opencode_env.taskset.difficulty_join import JoinFigures, JoinOptions, join, join_warnings
from opencode_runs.difficulty.rated import METADATA_KEY
from opencode_runs.errors import BadInputError, NothingUsableError

from tests.difficulty.lines import Line, attempts, episode, trace, write_run
from tests.support.programs import running
from tests.support.rows import write_rows
from tests.support.sizes import size
from tests.support.waiting import wait_until

Rows = list[dict[str, Any]]


def rows_of(path: Path) -> Rows:
    rows: Rows = pq.read_table(path).to_pylist()
    return rows


def keys_of(path: Path | str, **options: Any) -> list[str]:
    config = OpenCodeTasksetConfig(id="opencode-env", dataset=str(path), **options)
    return [task.key for task in OpenCodeTaskset(config).load()]


def run_of(folder: Path, keys: Sequence[str], *rewards: float) -> Path:
    return write_run(folder, [line for key in keys for line in attempts(key, *rewards)])


QUESTIONS: Rows = [{"question": f"what is {i}?", "answer": str(i)} for i in range(4)]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "tasks.jsonl", QUESTIONS)


def joined(tmp_path: Path, dataset: Path, lines: list[Line], **options: Any) -> tuple[JoinFigures, Rows]:
    output = tmp_path / "rated.parquet"
    figures = join(str(dataset), [write_run(tmp_path / "run", lines)], output, JoinOptions(force=True, **options))
    return figures, rows_of(output)


def test_rows_are_matched_by_the_key_their_task_has(tmp_path: Path, dataset: Path) -> None:
    keys = keys_of(dataset)
    lines = [*attempts(keys[2], 1, 0), *attempts(keys[0], 1, 1)]
    figures, rows = joined(tmp_path, dataset, lines)
    assert [row["avg_reward"] for row in rows] == [1.0, None, 0.5, None]
    assert [row["attempts"] for row in rows] == [2, None, 2, None]
    assert [row["question"] for row in rows] == [row["question"] for row in QUESTIONS]
    assert (figures.matched_by_key, figures.rated_rows, figures.unmatched_rows.count) == (2, 2, 2)


def test_tasks_without_a_row_are_counted_and_named(tmp_path: Path, dataset: Path) -> None:
    lines = [*attempts(keys_of(dataset)[0], 1), *attempts("gone", 1, task_id="the lost one")]
    figures, _ = joined(tmp_path, dataset, lines)
    assert figures.unmatched_tasks.count == 1
    assert "the lost one" in figures.unmatched_tasks.first[0]


def test_a_task_that_only_failed_has_errors_and_no_mean_and_its_row_is_not_rated(tmp_path: Path, dataset: Path) -> None:
    keys = keys_of(dataset)
    lines = [episode(keys[0], trace(ok=False, errors=[{"type": "SandboxError"}])), *attempts(keys[1], 1)]
    figures, rows = joined(tmp_path, dataset, lines)
    assert (rows[0]["avg_reward"], rows[0]["attempts"], rows[0]["errors"]) == (None, 0, 1)
    assert (figures.matched_by_key, figures.rated_rows) == (2, 1)


def test_the_joined_file_yields_the_same_tasks(tmp_path: Path) -> None:
    mixed: Rows = [
        {"question": "number", "answer": 7},
        {"question": "decimal", "answer": 7.5},
        {"question": "text", "answer": "seven", "topic": None},
        {"question": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "list"}], "answer": "x"},
        {"question": "one command", "verify": "true", "setup": ["a", "b"], "timeouts": {"agent": 3}},
        {"question": "commands", "verify": ["true", "false"], "setup": "a"},
        {"id": 5, "question": "with an id", "answer": "y"},
    ]
    dataset = write_rows(tmp_path / "tasks.jsonl", mixed)
    keys = keys_of(dataset)
    figures, rows = joined(tmp_path, dataset, [line for key in keys for line in attempts(key, 1)])
    assert figures.matched_by_key == len(mixed)
    assert figures.changed_identity.count == 0
    assert keys_of(tmp_path / "rated.parquet") == keys
    assert [row["answer"] for row in rows[:3]] == ["7", "7.5", "seven"]
    assert [note for note in figures.notes if "mixes" in note] == [
        'column "answer" mixes decimal numbers and text and whole numbers: written as text'
    ]  # text and lists of commands or messages are read alike


def test_a_column_that_parquet_cannot_hold_is_named(tmp_path: Path) -> None:
    rows: Rows = [{"question": "a", "answer": "1", "odd": 1}, {"question": "b", "answer": "1", "odd": {"x": 1}}]
    dataset = write_rows(tmp_path / "tasks.jsonl", rows)
    with pytest.raises(BadInputError, match='column "odd"'):
        joined(tmp_path, dataset, attempts(keys_of(dataset)[0], 1))


def test_runs_of_another_taskset_are_matched_by_id(tmp_path: Path) -> None:
    rows: Rows = [{"uid": "x-1", "text": "no question"}, {"uid": "x-2", "text": "here"}]
    dataset = write_rows(tmp_path / "other.jsonl", rows)
    lines = attempts("hash of x-2", 1, 0, task_id="x-2")
    figures, written = joined(tmp_path, dataset, lines, id_key="uid")
    assert [row["avg_reward"] for row in written] == [None, 0.5]
    assert (figures.matched_by_key, figures.matched_by_id) == (0, 1)


def test_an_id_that_several_tasks_carry_matches_none(tmp_path: Path) -> None:
    rows: Rows = [{"id": "twice", "question": "a", "answer": "1"}, {"id": "once", "question": "b", "answer": "1"}]
    dataset = write_rows(tmp_path / "tasks.jsonl", rows)
    lines = [*attempts("k1", 1, task_id="twice"), *attempts("k2", 0, task_id="twice")]
    figures, written = joined(tmp_path, dataset, [*lines, *attempts("k3", 1, task_id="once")])
    assert [row["avg_reward"] for row in written] == [None, 1.0]
    assert figures.unmatched_tasks.count == 2


def test_a_foreign_dataset_is_refused_and_writes_nothing(tmp_path: Path, dataset: Path) -> None:
    with pytest.raises(NothingUsableError, match="no row matches a task: rows are called"):
        join(str(dataset), [run_of(tmp_path / "run", ["elsewhere"], 1)], tmp_path / "rated.parquet", JoinOptions())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["tasks.jsonl"]


def test_an_output_that_exists_stays_as_it_was(tmp_path: Path, dataset: Path) -> None:
    output = tmp_path / "rated.parquet"
    output.write_text("precious")
    with pytest.raises(BadInputError, match="--force"):
        join(str(dataset), [run_of(tmp_path / "run", keys_of(dataset), 1)], output, JoinOptions())
    assert output.read_text() == "precious"


def test_a_join_that_fails_midway_leaves_the_old_output_and_no_rest(tmp_path: Path) -> None:
    output = tmp_path / "rated.parquet"
    output.write_text("precious")
    whole = tmp_path / "tasks.parquet"
    rows: Rows = [{"question": f"{i} {'why ' * (i % 50)}", "answer": str(i)} for i in range(5_000)]
    pq.write_table(pa.Table.from_pylist(rows), whole, row_group_size=1_000)
    keys = keys_of(whole)[:1]
    damaged = bytearray(whole.read_bytes())
    middle = len(damaged) // 2
    damaged[middle : middle + len(damaged) // 10] = b"\x00" * (len(damaged) // 10)
    whole.write_bytes(damaged)
    with pytest.raises(BadInputError, match="damaged"):
        join(str(whole), [run_of(tmp_path / "run", keys, 1)], output, JoinOptions(force=True))
    assert output.read_text() == "precious"
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_a_join_that_is_killed_leaves_the_old_output(tmp_path: Path) -> None:
    output = tmp_path / "rated.parquet"
    output.write_text("precious")
    dataset = write_rows(tmp_path / "tasks.jsonl", [{"question": f"q{i}", "answer": "1"} for i in range(20_000)])
    run = run_of(tmp_path / "run", ["any"], 1)
    command = ["join", str(dataset), str(run), "-o", str(output), "--force"]
    with running("-m", "opencode_runs.difficulty", *command) as (process, _):
        wait_until(lambda: list(tmp_path.glob(".*.part")) or process.poll() is not None)
        assert process.poll() is None
    assert output.read_text() == "precious"


def test_a_dataset_that_cannot_be_read_is_one_clear_error_and_never_looked_for_on_the_hub(tmp_path: Path) -> None:
    broken = tmp_path / "tasks.parquet"
    broken.write_bytes(b"PAR1 not really")
    with pytest.raises(BadInputError, match="not a Parquet file that can be read"):
        join(str(broken), [run_of(tmp_path / "run", ["a"], 1)], tmp_path / "out.parquet", JoinOptions())
    with pytest.raises(BadInputError, match="joining reads local data"):
        join("someone/some-dataset", [tmp_path / "run"], tmp_path / "o.parquet", JoinOptions())


def test_of_several_models_one_has_to_be_chosen(tmp_path: Path, dataset: Path) -> None:
    key = keys_of(dataset)[0]
    lines = [*attempts(key, 1), *attempts(key, 0, model="org/large-1.5")]
    with pytest.raises(BadInputError, match=r'model "org/large-1\.5".*--per-model'):
        joined(tmp_path, dataset, lines)
    assert joined(tmp_path, dataset, lines, model="small")[1][0]["avg_reward"] == 1.0
    with pytest.raises(BadInputError, match="they have"):
        joined(tmp_path, dataset, lines, model="tiny")


def test_all_models_are_written_side_by_side_with_their_names_as_prefix(tmp_path: Path, dataset: Path) -> None:
    keys = keys_of(dataset)
    lines = [*attempts(keys[0], 1), *attempts(keys[0], 0, model="org/large-1.5"), *attempts(keys[1], 1, model="small")]
    _, rows = joined(tmp_path, dataset, lines, per_model=True)
    assert [row["small_avg_reward"] for row in rows] == [1.0, 1.0, None, None]
    assert [row["org_large-1_5_avg_reward"] for row in rows] == [0.0, None, None, None]


def test_figures_already_there_are_replaced_only_on_request(tmp_path: Path, dataset: Path) -> None:
    keys = keys_of(dataset)
    joined(tmp_path, dataset, attempts(keys[0], 1))
    again = (tmp_path / "rated.parquet").rename(tmp_path / "before.parquet")
    with pytest.raises(BadInputError, match="already has the columns avg_reward"):
        joined(tmp_path, again, attempts(keys[0], 0))
    _, rows = joined(tmp_path, again, attempts(keys[0], 0), replace_columns=True)
    assert rows[0]["avg_reward"] == 0.0
    assert list(rows[0]).count("avg_reward") == 1


def test_the_file_says_where_its_figures_come_from(tmp_path: Path, dataset: Path) -> None:
    lines = [episode(keys_of(dataset)[0], trace(1.0))]
    joined(tmp_path, dataset, lines, threshold=0.5)
    about = json.loads(pq.read_schema(tmp_path / "rated.parquet").metadata[METADATA_KEY])
    [source] = about["sources"]
    assert (source["model"], source["env"], source["sampling"]) == ("small", "probe", [{"temperature": 0.7}])
    assert source["verifiers"] == ["0.4.0"]
    assert (about["threshold"], about["runs"][0]["episodes"]) == (0.5, 1)
    assert about["created"].endswith("+00:00")


def test_a_file_of_the_datasets_library_can_still_be_loaded_by_it(tmp_path: Path) -> None:
    from datasets import Dataset, load_dataset

    whole = tmp_path / "tasks.parquet"
    Dataset.from_list(QUESTIONS).to_parquet(whole)
    keys = keys_of(whole)
    joined(tmp_path, whole, attempts(keys[1], 1, 0))
    loaded = load_dataset("parquet", data_files=str(tmp_path / "rated.parquet"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"]["avg_reward"] == [None, 0.5, None, None]
    assert loaded["train"]["attempts"] == [None, 2, None, None]


def test_the_column_options_of_the_run_are_used(tmp_path: Path) -> None:
    rows: Rows = [{"problem": "a", "solution": "1"}, {"problem": "b", "solution": "2"}]
    dataset = write_rows(tmp_path / "tasks.jsonl", rows)
    options = {"question_key": "problem", "answer_key": "solution"}
    lines = [line for key in keys_of(dataset, **options) for line in attempts(key, 1, 0)]
    taskset = OpenCodeTasksetConfig(id="opencode-env", dataset=str(dataset), **options).model_dump(mode="json")
    run = write_run(tmp_path / "configured", lines, config={"model": "small", "env": {"taskset": taskset}})
    assert join(str(dataset), [run], tmp_path / "a.parquet", JoinOptions()).matched_by_key == 2
    assert joined(tmp_path, dataset, lines, taskset=options)[0].matched_by_key == 2


def test_the_sample_tasks_can_be_named(tmp_path: Path) -> None:
    keys = [task.key for task in OpenCodeTaskset(OpenCodeTasksetConfig(id="opencode-env")).load()]
    output = tmp_path / "rated.parquet"
    figures = join("samples", [run_of(tmp_path / "run", keys, 1)], output, JoinOptions())
    assert (figures.matched_by_key, figures.changed_identity.count) == (len(keys), 0)
    assert join_warnings(figures) == []
    assert keys_of(output) == keys


@pytest.mark.parametrize("kind", ["csv", "folder", "saved"])
def test_other_local_forms_of_a_dataset_are_joined(tmp_path: Path, kind: str) -> None:
    rows: Rows = [{"id": "007", "question": "a", "answer": "1"}, {"id": "008", "question": "b", "answer": "2"}]
    place = tmp_path / f"data.{kind}"
    if kind == "csv":
        place.write_text("id,question,answer\n007,a,1\n008,b,2\n")
    elif kind == "folder":
        place.mkdir()
        write_rows(place / "train.jsonl", rows)
    else:
        from datasets import Dataset

        Dataset.from_list(rows).save_to_disk(str(place))
    figures, written = joined(tmp_path, place, attempts("008", 1, task_id="008"))
    assert [(row["id"], row["avg_reward"]) for row in written] == [("007", None), ("008", 1.0)]
    assert keys_of(tmp_path / "rated.parquet") == ["007", "008"]
    assert figures.changed_identity.count == 0


VALUES = st.one_of(st.none(), st.integers(-(2**40), 2**40), st.text(max_size=8))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=size(15, 300), deadline=None)
@given(extra=st.lists(VALUES, min_size=1, max_size=40), rated=st.sets(st.integers(0, 60)), as_parquet=st.booleans())
def test_join_loses_and_invents_no_row(tmp_path: Path, extra: list[Any], rated: set[int], as_parquet: bool) -> None:
    rows: Rows = [{"question": f"q{i % 7}", "answer": "1", "extra": str(value)} for i, value in enumerate(extra)]
    dataset = tmp_path / ("tasks.parquet" if as_parquet else "tasks.jsonl")
    if as_parquet:
        pq.write_table(pa.Table.from_pylist(rows), dataset)
    else:
        write_rows(dataset, rows)
    keys = keys_of(dataset)
    expected = {keys[i] for i in rated if i < len(keys)}
    lines = [line for key in sorted(expected) for line in attempts(key, 1, 0)]
    lines += [line for i in rated if i >= len(keys) for line in attempts(f"elsewhere {i}", 1)]
    if not expected:
        with pytest.raises(NothingUsableError):
            joined(tmp_path, dataset, lines)
        return
    figures, written = joined(tmp_path, dataset, lines)
    assert [{name: row[name] for name in rows[0]} for row in written] == rows
    assert [row["avg_reward"] for row in written] == [0.5 if key in expected else None for key in keys]
    assert figures.rows == len(rows) == figures.matched_by_key + figures.unmatched_rows.count
    assert figures.unmatched_tasks.count == sum(i >= len(keys) for i in rated)
