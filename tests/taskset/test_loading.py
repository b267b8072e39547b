"""What a row becomes, whatever format it comes in."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.taskset import DatasetError, OpenCodeTaskData, OpenCodeTaskset, OpenCodeTasksetConfig
from opencode_env.taskset.config import CONFIGURABLE, FIXED

from tests.taskset.files import row, tasks, taskset, write_csv, write_jsonl, write_parquet

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


def test_the_samples_load_when_no_dataset_is_named() -> None:
    samples = list(OpenCodeTaskset(OpenCodeTasksetConfig()))
    assert len({task.key for task in samples}) == len(samples) >= 4


def test_every_column_of_the_table_fills_a_field_of_its_own() -> None:
    fields = [column.field for column in (*CONFIGURABLE.values(), *FIXED)]
    assert len(set(fields)) == len(fields)
    assert set(fields) <= set(OpenCodeTaskData.model_fields)


def test_every_column_with_a_meaning_reaches_the_task(tmp_path: Path) -> None:
    full = {
        "id": "t-1",
        "question": "Fix it.",
        "answer": 3,
        "setup": "touch a",
        "verify": ["test -e a", "true"],
        "image": "python:3.12",
        "workdir": "/srv/x",
        "system_prompt": "Be brief.",
        "setup_timeout": 5,
        "agent_timeout": 60.5,
        "verify_timeout": 7,
        "level": "easy",
        "info": {"source": "book"},
    }
    (task,) = tasks(write_jsonl(tmp_path / "tasks.jsonl", [full]))
    assert task.data == OpenCodeTaskData(
        idx=0,
        id="t-1",
        row_key="t-1",
        prompt="Fix it.",
        answer="3",
        setup=["touch a"],
        verify=["test -e a", "true"],
        image="python:3.12",
        workdir="/srv/x",
        system_prompt="Be brief.",
        timeout=vf.TaskTimeout(agent=60.5),
        setup_timeout=5.0,
        verify_timeout=7.0,
        info={"level": "easy", "source": "book"},
    )


def test_task_data_survives_the_way_to_a_worker(tmp_path: Path) -> None:
    rows = [row(1, image=PNG, extra={"a": [1.5, None], "b": b"\x00"}, nan=float("nan"))]
    (task,) = tasks(write_parquet(tmp_path / "tasks.parquet", rows))
    received = OpenCodeTaskData.model_validate_json(task.data.model_dump_json())
    assert received == task.data
    assert received.info == {"extra": {"a": [1.5, None], "b": "AA=="}, "nan": None}


def test_a_jsonl_column_may_mix_numbers_and_text(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "a", "answer": 1},
        {"question": "b", "answer": "one"},
        {"question": "c", "answer": 1.5, "setup": "true"},
        {"question": [{"role": "user", "content": "d"}], "answer": 12345678901234567890, "setup": ["true"]},
    ]
    loaded = tasks(write_jsonl(tmp_path / "tasks.jsonl", rows))
    assert [task.data.answer for task in loaded] == ["1", "one", "1.5", "12345678901234567890"]
    assert [task.data.setup for task in loaded] == [[], [], ["true"], ["true"]]


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"question": "a", "answer": "1"}\r\n\r\n  \n{"question": "b", "answer": "2"}')
    assert [task.data.prompt for task in tasks(file)] == ["a", "b"]


def test_csv_cells_stay_text(tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    file.write_text('id,question,answer,verify\n007,"two\nlines, ""quoted""",1.50,\n008,b,,exit 0\n')
    first, second = tasks(file)
    assert (first.data.id, first.data.prompt, first.data.answer) == ("007", 'two\nlines, "quoted"', "1.50")
    assert (second.data.answer, second.data.verify) == (None, ["exit 0"])


def test_nested_keys_reach_into_columns_and_literal_names_go_first(tmp_path: Path) -> None:
    nested = {"prompt": {"text": "a"}, "extra": {"truth": "nested"}}
    for rows, answer in (([{**nested, "extra.truth": "literal"}], "literal"), ([nested], "nested")):
        for file in (write_jsonl(tmp_path / "a.jsonl", rows), write_parquet(tmp_path / "a.parquet", rows)):
            (task,) = tasks(file, question_key="prompt.text", answer_key="extra.truth")
            assert (task.data.prompt, task.data.answer) == ("a", answer)


SHOWN = "Which?\n\nA. red\nB. 12\nC. blue\n\nThe answer is the letter of one option."
CHOICES: dict[str, dict[str, Any]] = {
    "MMLU-Pro": {"options": ["red", "12", "blue"], "answer": "C", "answer_index": 2},
    "SuperGPQA": {"options": ["red", "12", "blue"], "answer": "blue", "answer_letter": "C"},
    "MMLU": {"choices": ["red", "12", "blue"], "answer": 2},
    "ARC": {"choices": {"text": ["red", "12", "blue"], "label": ["A", "B", "C"]}, "answer": "C"},
    "MedQA": {"options": {"C": "blue", "A": "red", "B": "12"}, "answer": "blue"},
    "AQuA-RAT": {"options": ["A)red", "B)12", "C)blue"], "answer": "C"},
    "CMMLU": {"A": "red", "B": "12", "C": "blue", "answer": "C"},
    "MedMCQA": {"opa": "red", "opb": "12", "opc": "blue", "opd": None, "answer": 2},
    "SIQA": {"answerA": "red", "answerB": "12", "answerC": "blue", "answer": "C"},
    "HellaSwag": {"ending0": "red", "ending1": "12", "ending2": "blue", "answer": "2"},
    "WinoGrande": {"option1": "red", "option2": "12", "option3": "blue", "answer": 3},
    "letters": {"Option_a": "red", "Option_b": "12", "Option_c": "blue", "answer": "c"},
    "text": {"options": "['red', '12', 'blue']", "answer": "(C) blue"},
}


@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_options_are_shown_with_their_letters_and_the_answer_is_a_letter(
    kind: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [{"question": "Which?", **CHOICES[kind]}]
    if isinstance(CHOICES[kind].get("options", {}), dict):  # of other rows, Arrow gives this one more letters
        more = {"D": "green"} if kind == "CMMLU" else {}
        rows.append({"question": "What?", **CHOICES[kind], **more})
    first = tasks(write(tmp_path / "rows.data".replace("data", "jsonl" if write is write_jsonl else "parquet"), rows))[
        0
    ]
    assert first.data.prompt == SHOWN
    assert (first.data.answer, first.data.options) == ("C", {"A": "red", "B": "12", "C": "blue"})
    assert not {"options"} & first.data.info.keys()


def test_options_that_the_question_shows_are_not_shown_again(tmp_path: Path) -> None:
    asked = "Which?\n(A) red\n(B) blue"
    rows = [{"question": asked, "options": ["red", "blue"], "answer": "B"}]
    assert tasks(write_jsonl(tmp_path / "a.jsonl", rows))[0].data.prompt == asked
    rows[0]["question"] = "Which of 2 is red or blue?"
    template = " Choose: {options}!"
    (task,) = tasks(write_jsonl(tmp_path / "b.jsonl", rows), options_prompt=template)
    assert task.data.prompt == "Which of 2 is red or blue? Choose: A. red\nB. blue!"


def test_a_row_whose_letter_is_no_option_is_refused_and_other_columns_of_that_name_stay(tmp_path: Path) -> None:
    apart = {"question": "Which?", "opa": "2", "opb": "3", "answer": -1}
    with pytest.raises(DatasetError, match="is '-1', which fits none of the options A, B"):
        tasks(write_jsonl(tmp_path / "apart.jsonl", [apart]))
    kept = {"question": "Which?", "opa": "2", "opc": "3", "option": "x", "opt": "y", "answer": 1, "a": 1, "b": 2}
    (task,) = tasks(write_jsonl(tmp_path / "kept.jsonl", [kept]))
    assert (task.data.options, task.data.answer) == (None, "1")
    for answer, told in (("E", "fits none of the options A, B"), ("2", "several")):
        rows: list[dict[str, Any]] = [{"question": "Which?", "options": ["2", "2"], "answer": answer}]
        with pytest.raises(DatasetError, match=told):
            tasks(write_jsonl(tmp_path / "a.jsonl", rows))
    rows = [
        {"question": "a", "options": {"fast": True}, "answer": "B"},
        {"question": "b", "options": ["x", "y"], "verify": "true"},
        {"question": "c", "options": ["x", "y"], "answer": "a long text"},
    ]
    loaded = tasks(write_jsonl(tmp_path / "b.jsonl", rows))
    assert [(task.data.prompt, task.data.options) for task in loaded] == [("a", None), ("b", None), ("c", None)]
    assert [task.data.info["options"] for task in loaded] == [found["options"] for found in rows]
    for number, told in ((0, "must be the options of a question"), (2, "fits none of the options")):
        with pytest.raises(DatasetError, match=told):
            tasks(
                write_jsonl(tmp_path / "c.jsonl", [rows[number] | {"picks": rows[number]["options"]}]),
                options_key="picks",
            )


def test_other_options_make_another_task(tmp_path: Path) -> None:
    rows = [{"question": "Which?", "options": options, "answer": "A"} for options in (["x", "y"], ["x", "z"])]
    first, second = tasks(write_jsonl(tmp_path / "a.jsonl", rows))
    assert first.key != second.key
    (again,) = tasks(write_jsonl(tmp_path / "b.jsonl", rows[:1]), options_prompt="{options}")
    assert again.key == first.key


def test_nulls_that_a_table_fills_in_are_no_fields_of_a_group_at_any_depth(tmp_path: Path) -> None:
    members = [
        {"weight": 0.5, "rubric": {"type": "answer"}},
        {"rubric": {"type": "judge", "choices": {"yes": 1.0, "no": 0.0}}},
    ]
    rows = [
        row(1, rubric={"type": "group", "members": members}),
        row(2, rubric={"type": "hybrid-math", "judge_sampling": {"temperature": 0.5}}),
    ]
    from_table, from_lines = (
        [task.rubric_config for task in tasks(write(tmp_path / name, rows))]
        for write, name in ((write_parquet, "a.parquet"), (write_jsonl, "a.jsonl"))
    )
    assert from_table == from_lines


def test_instructions_stand_around_the_question(tmp_path: Path) -> None:
    earlier = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    rows: list[dict[str, Any]] = [
        {"question": "Q", "answer": "1"},
        {"question": [*earlier, {"role": "user", "content": "Q"}], "answer": "1"},
        {"question": [{"role": "user", "content": [{"type": "text", "text": "Q"}]}], "answer": "1"},
    ]
    file = write_jsonl(tmp_path / "tasks.jsonl", rows)
    plain, messages, parts = tasks(file, instruction_prompt="Solve: ", instruction_prompt_post=" Thanks.")
    assert plain.data.prompt == "Solve: Q Thanks."
    assert messages.data.prompt_text == "hello\n\nhi\n\nSolve: Q Thanks."
    assert parts.data.prompt_text == "Solve: \nQ\n Thanks."


def test_messages_read_from_arrow_lose_the_nulls_that_arrow_adds(tmp_path: Path) -> None:
    question = [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "hi", "reasoning_content": "hm"},
        {"role": "user", "content": "Q"},
    ]
    (task,) = tasks(write_parquet(tmp_path / "tasks.parquet", [{"question": question, "answer": "1"}]))
    assert task.data.system_prompt == "Be brief."
    assert task.data.prompt == [vf.AssistantMessage(content="hi", reasoning_content="hm"), vf.UserMessage(content="Q")]


@pytest.mark.parametrize("cell", [PNG, {"bytes": PNG, "path": "a.png"}, [{"bytes": PNG, "path": None}]])
def test_a_picture_is_shown_with_the_question_and_names_no_container(tmp_path: Path, cell: object) -> None:
    (task,) = tasks(write_parquet(tmp_path / "tasks.parquet", [row(1, image=cell)]))
    assert task.data.image is None
    part = vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url=PNG_URL))
    assert task.data.prompt == [vf.UserMessage(content=[vf.TextContentPart(text="What is 1 + 1?"), part])]


def test_a_text_in_the_image_column_names_the_container(tmp_path: Path) -> None:
    (task,) = tasks(write_jsonl(tmp_path / "tasks.jsonl", [row(1, box="alpine:3")]), image_key="box")
    assert task.data.image == "alpine:3"
    assert task.data.prompt == "What is 1 + 1?"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize(
    ("option", "nearest"),
    [
        ({"question_key": "quesiton"}, "question"),
        ({"answer_key": "anwser"}, "answer"),
        ({"id_key": "idd"}, "id"),
        ({"verify_key": "answr"}, "answer"),
        ({"difficulty_key": "avg_rewrad"}, "avg_reward"),
    ],
)
def test_a_column_that_does_not_exist_is_an_error_that_names_the_nearest(
    tmp_path: Path, suffix: str, option: dict[str, str], nearest: str
) -> None:
    write = {"jsonl": write_jsonl, "parquet": write_parquet, "csv": write_csv}[suffix]
    file = write(tmp_path / f"tasks.{suffix}", [row(1, id="a", avg_reward=0.5)])
    ((name, key),) = option.items()
    with pytest.raises(DatasetError) as caught:
        tasks(file, **option)
    assert f'{file}: {name} "{key}" names no column; there are: question, answer, id, avg_reward' in str(caught.value)
    assert f"did you mean '{nearest}'" in str(caught.value)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
def test_a_broken_file_is_one_clear_error(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"tasks.{suffix}"
    file.write_bytes(b"\x00\xff\x00 not a dataset \xff")
    with pytest.raises(DatasetError, match=f"{file}"):
        tasks(file)


def test_an_empty_file_holds_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.touch()
    with pytest.raises(DatasetError, match="holds no rows"):
        tasks(file)


def test_a_taskset_can_be_iterated_again(tmp_path: Path) -> None:
    loaded = taskset(write_jsonl(tmp_path / "tasks.jsonl", [row(1), row(2)]))
    assert [task.key for task in loaded] == [task.key for task in loaded]
