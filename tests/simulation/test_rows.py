"""Rows of a simulation: in our names, in those of the family, and wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from opencode_env.taskset import DatasetError
from opencode_simulation import SimulationTaskset
from opencode_simulation.task import SimulationTaskConfig
from opencode_simulation.taskset import SimulationTasksetConfig

from tests.support.rows import write_rows

USER = {"enabled": True, "system_prompt": "You are in a hurry.", "llm": "some-model"}


def read(**options: Any) -> list[Any]:
    """The data of the tasks of a taskset with these options."""
    return [task.data for task in SimulationTaskset(SimulationTasksetConfig(**options))]


def loaded(path: Path, *rows: dict[str, Any]) -> list[Any]:
    """The data of the tasks of these rows."""
    return read(dataset=write_rows(path, rows))


def test_the_names_of_the_family_mean_the_same(tmp_path: Path) -> None:
    same = {"id": "one", "seed": 3, "system_prompt": "Be brief.", "user_simulation": USER}
    family = {**same, "user_prompt_template": "Go: {observation}", "environment_context": {"size": 5}}
    ours = {**same, "prompt": "Go: {observation}", "config": {"size": 5}}
    first, second = loaded(tmp_path / "rows.jsonl", family, ours)
    assert first.model_dump(exclude={"idx"}) == second.model_dump(exclude={"idx"})
    assert (first.seed, first.config, first.user_simulation) == (3, {"size": 5}, USER)


def test_a_seed_in_the_environment_context_is_the_rows(tmp_path: Path) -> None:
    (data,) = loaded(tmp_path / "rows.jsonl", {"environment_context": {"seed": 9}})
    assert data.seed == 9


def test_without_a_file_there_are_the_shipped_rows_or_seeds() -> None:
    shipped = read(task=SimulationTaskConfig(world="issue-tracker"))
    assert {data.id for data in shipped} >= {"triage-1", "report-4"}
    made = list(SimulationTaskset(SimulationTasksetConfig(episodes=3, first_seed=40, prompt="{observation}?")))
    assert [(task.data.seed, task.data.prompt) for task in made] == [(seed, "{observation}?") for seed in (40, 41, 42)]
    assert len({task.key for task in made}) == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"seed": "seven"}, 'row 2: column "seed": .*valid integer.*"seven"'),
        ({"seed": True}, 'column "seed"'),
        ({"seed": 2**63}, 'column "seed"'),
        ({"environment_context": {"seed": -(2**70)}}, 'column "environment_context.seed" must be a whole number'),
        ({"environment_context": {"seed": "x"}}, 'column "environment_context.seed" must be a whole number'),
        ({"config": [1]}, 'column "config'),
        ({"question": "?"}, 'column "question": Extra inputs .*"prompt"'),
        ({"hole_share": 0.5}, 'column "hole_share": Extra inputs .*write it in "config"'),
        ({"script": ["Hello."]}, 'column "script": Extra inputs .*write it in "user_simulation"'),
        ({"colour": "red"}, 'column "colour": Extra inputs .* a row has id, seed, config, .*anything else in "info"'),
        ({"max_steps": 0}, 'column "max_steps"'),
        (
            {"user_simulation": {"persona": "x"}},
            'column "user_simulation.persona": Extra inputs .* a user has .*script',
        ),
        ({"user_simulation": {"enabled": True}}, 'column "user_simulation": .*needs a system_prompt'),
    ],
)
def test_a_wrong_row_names_its_line_and_column(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        loaded(tmp_path / "rows.jsonl", {"seed": 1}, row)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such file"):
        read(dataset=tmp_path / "rows.jsonl")


@pytest.mark.parametrize("form", ["plain", "indented", "marked", "pushed"])
def test_a_json_array_of_rows_is_read_like_lines(form: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": "é", "seed": 1}, {"id": "b", "user_prompt_template": "Go.\n{observation}"}]
    text = json.dumps(rows, ensure_ascii=False, indent=2 if form == "indented" else None)
    path = tmp_path / "rows.json"
    path.write_text({"pushed": "\n \n"}.get(form, "") + text, encoding="utf-8-sig" if form == "marked" else "utf-8")
    found, lines = read(dataset=path), loaded(tmp_path / "rows.jsonl", *rows)
    assert [data.model_dump() for data in found] == [data.model_dump() for data in lines]
    assert [data.id for data in found] == ["é", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"seed": 1}, {"seed": "x"}]', 'rows.json row 2: column "seed"'),
        ('[{"seed": 1}, 7]', "rows.json row 2: a JSON object is needed, not int"),
        ('[{"seed": 1},\n{"seed": ]', "rows.json: it begins as a JSON array and is not one: .*line 2 column 10"),
    ],
)
def test_what_is_wrong_in_an_array_is_told_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message):
        read(dataset=path)
