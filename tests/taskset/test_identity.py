"""A task keeps its key whatever happens around it."""

import random
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.taskset.files import Rows, row, tasks, write_csv, write_jsonl, write_parquet

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=8).filter(str.strip)
ROW = st.fixed_dictionaries(
    {"question": TEXT, "answer": TEXT}, optional={"setup": st.lists(TEXT, max_size=2), "system_prompt": TEXT}
)


def keys(file: Path, **options: Any) -> dict[str, str]:
    """Keys by question."""
    return {task.data.prompt_text: task.key for task in tasks(file, **options)}


def of_rows(tmp_path: Path, rows: Rows) -> dict[str, str]:
    return keys(write_jsonl(tmp_path / "rows.jsonl", rows))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=12, unique_by=lambda r: r["question"]), seed=st.integers())
def test_keys_are_the_same_after_a_shuffle_and_in_another_format(
    tmp_path: Path, rows: list[dict[str, Any]], seed: int
) -> None:
    expected = of_rows(tmp_path, rows)
    assert len(set(expected.values())) == len(rows)
    shuffled = rows.copy()
    random.Random(seed).shuffle(shuffled)
    assert of_rows(tmp_path, shuffled) == expected
    assert keys(write_parquet(tmp_path / "rows.parquet", shuffled)) == expected


def test_a_whole_number_answer_is_the_same_in_every_format(tmp_path: Path) -> None:
    rows = [{"question": "?", "answer": 7}]
    files = [
        write_jsonl(tmp_path / "rows.jsonl", rows),
        write_parquet(tmp_path / "rows.parquet", rows),
        write_parquet(tmp_path / "floats.parquet", [{"question": "?", "answer": 7.0}]),
        write_csv(tmp_path / "rows.csv", rows),
    ]
    assert len({keys(file)["?"] for file in files}) == 1


def test_the_key_is_pinned(tmp_path: Path) -> None:
    # Results are joined to datasets by this key: another value orphans every rated dataset.
    whole = {"answer": "1", "setup": "a", "verify": ["b"], "image": "i", "workdir": "/w", "system_prompt": "s"}
    rows = [row(1), {"question": [{"role": "user", "content": "Q"}], **whole}]
    plain, full = tasks(write_jsonl(tmp_path / "rows.jsonl", rows))
    assert plain.key == "cce47c1b6a98334466ffc5858f65c17315c6c9fcb9139c29d21c1cff2cf6fd2c"
    assert full.key == "cf234d6a490305f34cd620a72917bbee4bbf594a316a33ef460c93a9c30d5c5f"


def test_a_rating_other_columns_and_instructions_leave_the_key_as_it_was(tmp_path: Path) -> None:
    expected = of_rows(tmp_path, [row(1)])
    assert of_rows(tmp_path, [row(1, avg_reward=0.5, source="x", agent_timeout=5)]) == expected
    file = write_jsonl(tmp_path / "rows.jsonl", [row(1)])
    assert list(keys(file, instruction_prompt="Solve: ").values()) == list(expected.values())


def test_another_answer_or_check_is_another_task(tmp_path: Path) -> None:
    other = {
        "answer": "3",
        "verify": "true",
        "setup": "true",
        "image": "alpine",
        "workdir": "/srv",
        "system_prompt": "s",
    }
    variants: Rows = [row(1), *(row(1) | {name: value} for name, value in other.items())]
    assert len({task.key for task in tasks(write_jsonl(tmp_path / "rows.jsonl", variants))}) == len(variants)


def test_another_picture_is_another_task(tmp_path: Path) -> None:
    rows = [row(1, image=b"GIF89a" + pixels) for pixels in (b"a", b"b", b"a")]
    first, second, third = tasks(write_parquet(tmp_path / "rows.parquet", rows))
    assert first.key != second.key
    assert third.key == f"{first.key}-2"


def test_equal_rows_are_told_apart_by_counting(tmp_path: Path) -> None:
    first, second, third = tasks(write_jsonl(tmp_path / "rows.jsonl", [row(1), row(1), row(1)]))
    assert second.key == f"{first.key}-2"
    assert third.key == f"{first.key}-3"


def test_an_id_column_is_the_key(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "rows.jsonl", [row(1, id="a", uuid=7), row(2, id="b", uuid=8.0)])
    assert [task.key for task in tasks(file)] == ["a", "b"]
    assert [task.key for task in tasks(file, id_key="uuid")] == ["7", "8"]
    assert [task.data.id for task in tasks(file, id_key="uuid")] == ["7", "8"]


def test_a_task_made_by_hand_has_a_key_without_its_position(tmp_path: Path) -> None:
    (task,) = tasks(write_jsonl(tmp_path / "rows.jsonl", [row(1)]))
    made = task.with_data(row_key=None)
    assert made.key == made.with_data(idx=99).key
    assert made.key != made.with_data(answer="other").key
