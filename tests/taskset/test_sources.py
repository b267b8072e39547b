"""What a dataset's name can mean, and what is said when it means nothing."""

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from opencode_env.taskset.sources import open_hub_dataset, stream_hub_dataset

from tests.taskset.files import row, tasks, write_csv, write_jsonl, write_parquet


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library, without this machine's cache; its import is for the worker that runs these tests."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    yield datasets
    datasets.enable_progress_bars()


def answers(dataset: Path | str, **options: str) -> list[str | None]:
    return [task.data.answer for task in tasks(dataset, **options)]


def write_folder(folder: Path, *names: str) -> Path:
    """Files of one row each, whose numbers are 1, 2, …"""
    for number, name in enumerate(names, 1):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (write_jsonl if name.endswith("jsonl") else write_parquet)(folder / name, [row(number)])
    return folder


def test_a_folder_is_read_in_the_order_of_its_file_names(tmp_path: Path) -> None:
    write_folder(tmp_path, "part-2.jsonl", "part-1.jsonl", "part-3.jsonl", ".hidden/part-0.jsonl")
    (tmp_path / "README.md").write_text("text")
    assert answers(tmp_path) == ["3", "2", "4"]


def test_a_glob_reads_what_it_matches(tmp_path: Path) -> None:
    write_folder(tmp_path, "1/rows.parquet", "2/rows.parquet")
    assert answers(f"{tmp_path}/**/*.parquet") == ["2", "3"]
    with pytest.raises(DatasetError, match="file matches"):
        answers(f"{tmp_path}/*.csv")


def test_a_path_with_the_signs_of_a_glob_in_it_is_a_path_if_it_exists(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "tasks[1].jsonl", [row(1)])
    assert glob.has_magic(str(file))
    assert answers(file) == ["2"]


def test_a_folder_has_the_splits_that_its_file_names_say(tmp_path: Path) -> None:
    write_folder(tmp_path, *(f"train-0000{part}-of-00002.jsonl" for part in (0, 1)), "test.jsonl", "dev/rows.jsonl")
    assert answers(tmp_path) == ["2", "3"]
    assert answers(tmp_path, dataset_split="test") == ["4"]
    assert answers(tmp_path, dataset_split="dev") == answers(tmp_path, dataset_split="validation") == ["5"]
    with pytest.raises(DatasetError, match=r"no split \"tset\"; there are: .*test.* \(did you mean 'test'"):
        answers(tmp_path, dataset_split="tset")


def test_without_a_train_split_the_split_must_be_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "test.jsonl", [row(1)])
    assert answers(tmp_path) == ["2"]
    write_jsonl(tmp_path / "validation.jsonl", [row(2)])
    with pytest.raises(DatasetError, match="set dataset_split, there are: test, validation"):
        answers(tmp_path)


def test_a_subset_is_a_folder_in_the_folder(tmp_path: Path) -> None:
    write_folder(tmp_path, "easy/train.jsonl", "hard/train.jsonl")
    assert answers(tmp_path, dataset_subset="hard") == ["3"]
    with pytest.raises(DatasetError, match=r'no sub-folder "hrad"; there are: easy, hard .did you mean'):
        answers(tmp_path, dataset_subset="hrad")


def test_mixed_formats_in_a_folder_are_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [row(1)])
    write_csv(tmp_path / "b.csv", [row(2)])
    with pytest.raises(DatasetError, match=r"\.csv and \.jsonl files are mixed"):
        answers(tmp_path)


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no \.jsonl, \.parquet, \.csv file in this folder"):
        answers(tmp_path)


@pytest.mark.parametrize("name", ["task.jsonl", "./task.jsonl", "/nowhere/tasks", "a/b/c"])
def test_a_path_that_does_not_exist_is_never_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_jsonl(tmp_path / "tasks.jsonl", [row(1)])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match="no such file or folder") as caught:
        answers(name)
    if name.endswith("task.jsonl"):
        assert "did you mean 'tasks.jsonl'" in str(caught.value)


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.xlsx").touch()
    with pytest.raises(DatasetError, match=r'files can be .jsonl, .parquet, .csv, not ".xlsx"'):
        answers(tmp_path / "tasks.xlsx")


@pytest.mark.parametrize("options", [{"revision": "main"}, {"dataset_subset": "easy"}, {"dataset_split": "test"}])
def test_options_of_the_hub_are_refused_for_a_file(tmp_path: Path, options: dict[str, str]) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [row(1)])
    with pytest.raises(DatasetError, match=f'dataset "{file}"'):
        answers(file, **options)


def test_a_saved_dataset_is_read_from_its_folder(datasets: Any, tmp_path: Path) -> None:
    saved = datasets.Dataset.from_list([row(number) for number in range(600)])
    saved.save_to_disk(tmp_path / "one")
    # A selection keeps an index mapping next to the table.
    saved.select([5, 3, 1]).save_to_disk(tmp_path / "picked")
    assert answers(tmp_path / "one") == [str(number + 1) for number in range(600)]
    assert answers(tmp_path / "picked") == ["6", "4", "2"]


def test_a_saved_dataset_with_splits_lists_them(datasets: Any, tmp_path: Path) -> None:
    parts = {name: datasets.Dataset.from_list([row(number)]) for number, name in enumerate(["train", "test"])}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "both")
    assert answers(tmp_path / "both") == ["1"]
    assert answers(tmp_path / "both", dataset_split="test") == ["2"]
    with pytest.raises(DatasetError, match='no split "dev"; there are: train, test'):
        answers(tmp_path / "both", dataset_split="dev")


def test_a_hub_dataset_is_opened_and_streamed_by_its_splits(tmp_path: Path) -> None:
    # The library loads a local folder with the very code that it uses for the Hub.
    folder = tmp_path / "data"
    folder.mkdir()
    write_parquet(folder / "train.parquet", [row(number) for number in range(200)])
    write_parquet(folder / "test.parquet", [row(7)])
    config = OpenCodeTasksetConfig(dataset=str(folder))
    assert len(list(open_hub_dataset(config).rows(None))) == 200
    parts = list(stream_hub_dataset(config))
    rows = [found for part in parts for found in part.rows(None)]
    assert [found.number for found in rows] == list(range(1, 201))
    assert [found.values for found in rows] == [found.values for found in open_hub_dataset(config).rows(None)]
    assert len(parts) > 1
    test = config.model_copy(update={"dataset_split": "test"})
    assert [found.values["answer"] for found in open_hub_dataset(test).rows(None)] == ["8"]
    for wrong in (open_hub_dataset, lambda c: list(stream_hub_dataset(c))):
        with pytest.raises(DatasetError, match=r'no split "tset"; there are: .*test'):
            wrong(config.model_copy(update={"dataset_split": "tset"}))


def test_a_hub_dataset_with_one_split_needs_no_split(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", "test.parquet")
    assert len(list(open_hub_dataset(OpenCodeTasksetConfig(dataset=str(folder))).rows(None))) == 1
