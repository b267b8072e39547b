"""A row that cannot become a task is named by file, row and column."""

from pathlib import Path
from typing import Any

import pytest
from opencode_env.taskset import DatasetError

from tests.taskset.files import row, tasks, write_jsonl, write_parquet

PNG = b"\x89PNG\r\n\x1a\n"
JUDGED = {"type": "hybrid-math", "judge_client": {"api_key_var": "HOME"}}


@pytest.mark.parametrize(
    ("bad", "column", "problem"),
    [
        ({"answer": "1"}, "question", "is missing; there are: answer"),
        ({"qestion": "?", "answer": "1"}, "question", "did you mean 'qestion'"),
        ({"question": None, "answer": "1"}, "question", "is empty"),
        ({"question": "  ", "answer": "1"}, "question", "is empty"),
        ({"question": 7, "answer": "1"}, "question", "must be text or a list of messages, not int"),
        ({"question": [], "answer": "1"}, "question", "must end with a message of the user"),
        ({"question": ["hello"], "answer": "1"}, "question", "is not a list of {role, content} messages"),
        ({"question": [{"role": "assistant", "content": "hi"}], "answer": "1"}, "question", "must end with"),
        ({"question": [{"role": "user"}], "answer": "1"}, "question", "message 0.user.content"),
        ({"question": "?", "answer": ["1"]}, "answer", "must be text or a number, not list"),
        ({"question": "?", "answer": True}, "answer", "must be text or a number, not bool"),
        ({"question": "?", "answer": "1", "setup": 3}, "setup", "must be a shell command or a list of them"),
        ({"question": "?", "answer": "1", "setup": ["true", 3]}, "setup", "entry 2 must be a shell command"),
        ({"question": "?", "verify": ["true", " "]}, "verify", "entry 2 must be a shell command"),
        ({"question": "?", "verify": {"a": 1}}, "verify", "must be a shell command or a list of them, not dict"),
        ({"question": "?", "answer": "1", "image": 3}, "image", "must be the name of a container image, or pictures"),
        ({"question": "?", "answer": "1", "workdir": "app"}, "workdir", "must be an absolute path, not 'app'"),
        ({"question": "?", "answer": "1", "system_prompt": 1}, "system_prompt", "must be text, not int 1"),
        ({"question": "?", "answer": "1", "agent_timeout": 0}, "agent_timeout", "must be a positive number of seconds"),
        ({"question": "?", "answer": "1", "verify_timeout": "9"}, "verify_timeout", "positive number of seconds"),
        ({"question": "?", "answer": "1", "setup_timeout": True}, "setup_timeout", "positive number of seconds"),
        ({"question": "?", "answer": "1", "id": 1.5}, "id", "must be text or a whole number"),
        ({"question": "?", "answer": "1", "agent_timeout": 10**400}, "agent_timeout", "must be a positive number"),
        ({"question": "\ud800", "answer": "1"}, "question", "lone surrogate"),
        ({"question": "?", "answer": "1", "id": "\ud800"}, "id", "lone surrogate"),
        ({"question": "?", "verify": ["echo \ud800"]}, "verify", "lone surrogate"),
        ({"question": [{"role": "user", "content": "\ud800"}], "answer": "1"}, "question", "lone surrogate"),
        (
            {"question": "?", "answer": "1", "rubric": JUDGED},
            "rubric",
            "must not set judge_client: set --env.taskset.task.rubric.judge_client instead",
        ),
        (
            {
                "question": "?",
                "answer": "1",
                "rubric": {"type": "group", "members": [{"rubric": {**JUDGED, "judge_client": {}}}]},
            },
            "rubric",
            "must not set judge_client",
        ),
    ],
)
def test_a_bad_cell_is_named_by_file_row_and_column(
    tmp_path: Path, bad: dict[str, Any], column: str, problem: str
) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [row(1), bad])
    with pytest.raises(DatasetError) as caught:
        tasks(file)
    assert str(caught.value).startswith(f'{file} row 2: column "{column}" ')
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "empty", [{}, {"answer": None}, {"answer": ""}, {"verify": []}, {"answer": None, "verify": ""}]
)
def test_a_row_with_neither_answer_nor_verify_is_refused(tmp_path: Path, empty: dict[str, Any]) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [row(1), {"question": "?", **empty}])
    with pytest.raises(DatasetError, match='row 2: neither column "answer" nor column "verify" holds anything'):
        tasks(file)


@pytest.mark.parametrize("path", ["tests.rubrics.third_party_rubric:LengthRubric"])
def test_a_row_for_a_rubric_of_ones_own_needs_a_question_only(tmp_path: Path, path: str) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [{"question": "?"}])
    (task,) = tasks(file, task={"rubric": {"type": path}})
    assert (task.data.answer, task.data.verify) == (None, [])
    with pytest.raises(DatasetError, match="a rubric of your own"):
        tasks(file, task={"rubric": {"type": "judge"}})
    own = write_jsonl(tmp_path / "own.jsonl", [{"question": "?", "rubric": {"type": path}}])
    assert [one.rubric_config.type for one in tasks(own)] == [path]


def test_an_answer_that_is_not_a_number_counts_as_none(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "tasks.parquet", [{"question": "?", "answer": float("nan")}])
    with pytest.raises(DatasetError, match="row 1: neither column"):
        tasks(file)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"question": "?", "answ', "row 3: no valid JSON"),
        (b"[1, 2]", "row 3: a JSON object is needed, not list"),
        (b'"text"', "row 3: a JSON object is needed, not str"),
        (b'{"question": "\xff\xfe", "answer": "1"}', "row 3: no valid JSON"),
    ],
    ids=["cut off", "a list", "a text", "not UTF-8"],
)
def test_a_line_that_is_no_json_object_is_named_by_its_line_number(tmp_path: Path, line: bytes, problem: str) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [row(1)])
    # The blank line counts: an editor shows the same number.
    file.write_bytes(file.read_bytes() + b"\n" + line + b"\n")
    with pytest.raises(DatasetError, match=problem):
        tasks(file)


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [row(1, id="a"), row(2, id="b"), row(3, id="a")])
    with pytest.raises(DatasetError, match="row 3: column \"id\" repeats the id 'a' of an earlier row"):
        tasks(file)


def test_an_empty_id_is_refused_only_where_ids_were_asked_for(tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "tasks.jsonl", [row(1, id="a"), row(2, id=None)])
    assert len(tasks(file)) == 2
    with pytest.raises(DatasetError, match='row 2: column "id" is empty'):
        tasks(file, id_key="id")


def test_a_system_column_and_a_system_message_contradict_each_other(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "?"}]
    file = write_jsonl(tmp_path / "tasks.jsonl", [{"question": messages, "answer": "1", "system_prompt": "b"}])
    with pytest.raises(DatasetError, match='row 1: column "system_prompt" is set although'):
        tasks(file)


@pytest.mark.parametrize(
    ("picture", "problem"),
    [
        ({"bytes": None, "path": "/etc/passwd"}, "pictures with their bytes in the row"),
        (b"no picture", "holds a picture that is not a PNG"),
        ([PNG, b"no picture"], "holds a picture that is not a PNG"),
    ],
)
def test_a_picture_without_its_data_is_refused(tmp_path: Path, picture: object, problem: str) -> None:
    file = write_parquet(tmp_path / "tasks.parquet", [row(1, image=picture)])
    with pytest.raises(DatasetError, match=problem):
        tasks(file)


@pytest.mark.parametrize("depth", [100, 300, 900, 9999])
def test_what_a_trace_cannot_hold_is_refused_or_replaced(tmp_path: Path, depth: int) -> None:
    file = tmp_path / "tasks.jsonl"
    nested = "[" * depth + "]" * depth
    file.write_text('{"question": "?", "answer": "1", "\\ud800": "\\ud800", "deep": ' + nested + "}")
    if depth == 100:
        (task,) = tasks(file)
        assert '"\ufffd":"\ufffd"' in task.data.model_dump_json()
        return
    with pytest.raises(DatasetError, match=r"row 1: (a cell is nested too deeply|no valid JSON: maximum recursion)"):
        tasks(file)
