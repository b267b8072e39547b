"""The environments of `opencode-tasks`: found by id, with their values as defaults, and rows told that are left out."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnv
from opencode_env.cli_agent.env import CliAgentEnv
from opencode_env.taskset import DatasetError, OpenCodeTask, OpenCodeTasksetConfig
from opencode_env.taskset.difficulty_join import OWN_PREFIX, RowKeys
from opencode_env.taskset.row import Row
from opencode_rubrics import CodeTestsConfig, RemoteHybridMathConfig
from verifiers.v1.cli.eval.main import main
from verifiers.v1.utils import loaders

from tests.support.rows import write_rows
from tests.support.sizes import WHOLE
from tests.tasks.problems import CODE, CODES, MATH, MATHS, PROBLEMS, SCIENCE, Problem

DEFAULTS = {
    "opencode-math": ("math", MATH, RemoteHybridMathConfig(answer_path="/app/answer.txt")),
    "opencode-science": ("science", SCIENCE, RemoteHybridMathConfig(answer_path="/app/answer.txt")),
    "opencode-cp": ("code", CODE, CodeTestsConfig(answer_path="/app/answer.py")),
}
IDS = pytest.mark.parametrize("ident", DEFAULTS)


def config(ident: str, agent: dict[str, Any] | None = None, **taskset: Any) -> Any:
    """The environment's configuration with these options."""
    return loaders.resolve_env_config({"taskset": {"id": ident, **taskset}, "agent": agent or {}})


def load(ident: str, path: Path, problems: list[Problem], **taskset: Any) -> list[OpenCodeTask]:
    """The tasks of these rows."""
    dataset = write_rows(path / "rows.jsonl", [one.row for one in problems])
    options = {"dataset": str(dataset), "dataset_subset": None, "dataset_split": None, **taskset}
    return list(loaders.load_taskset(config(ident, **options).taskset))


@IDS
def test_an_environment_is_found_by_its_id_and_has_its_values_as_defaults(ident: str) -> None:
    env = loaders.environment_class(ident)
    assert OpenCodeEnv in env.__bases__
    assert issubclass(env, CliAgentEnv)
    found = config(ident)
    assert type(found).__name__ == f"{env.__name__}Config"
    subset, key, rubric = DEFAULTS[ident]
    taskset = found.taskset
    source = (taskset.dataset, taskset.dataset_subset, taskset.dataset_split)
    assert source == ("PrimeIntellect/INTELLECT-3-RL", subset, "train")
    assert (taskset.difficulty_key, taskset.min_avg_reward, taskset.max_avg_reward) == (key, 0.0, 1.0)
    assert taskset.task.rubric == rubric
    assert (found.agent.max_turns, found.agent.timeout.rollout) == (100, 3600)
    assert found.agent.harness.disabled_tools == ["question", "task", "websearch"]
    assert found.agent.harness.agent_workdir == "/app"
    assert ident.replace("-", "_").startswith(OWN_PREFIX)


@IDS
def test_an_option_below_a_table_leaves_the_other_defaults_as_they_are(ident: str) -> None:
    rubric = DEFAULTS[ident][2]
    option = "strict" if isinstance(rubric, CodeTestsConfig) else "use_judge_fallback"
    agent = {"timeout": {"setup": 5}, "harness": {"system_prompt": "x"}, "runtime": {"type": "podman"}}
    found = config(ident, agent=agent, task={"setup_timeout": 7, "rubric": {option: True}})
    assert found.taskset.task.rubric == rubric.model_copy(update={option: True})
    assert found.taskset.task.setup_timeout == 7
    assert (found.agent.max_turns, found.agent.timeout.rollout, found.agent.timeout.setup) == (100, 3600, 5)
    assert found.agent.harness.disabled_tools == ["question", "task", "websearch"]
    assert config(ident, task={"rubric": {"type": "answer"}}).taskset.task.rubric.type == "answer"
    saved = json.loads(found.model_dump_json())
    assert loaders.resolve_env_config(saved) == found


@pytest.mark.parametrize("ident", [*DEFAULTS, "opencode-deepdive", "opencode-swe", "opencode-rlm"])
def test_compaction_is_one_option_away(ident: str) -> None:
    """The window is asked of the endpoint then, and the defaults stay."""
    off, on = config(ident), config(ident, agent={"harness": {"disable_compaction": False}})
    assert (off.agent.harness.context_window, on.agent.harness.context_window) == (None, "auto")
    assert on.agent.harness.disabled_tools == off.agent.harness.disabled_tools
    known = {"harness": {"disable_compaction": False, "context_window": 9000}}
    assert config(ident, agent=known).agent.harness.context_window == 9000


@pytest.mark.parametrize("ident", ["opencode-deepdive", "opencode-swe"])
def test_another_dataset_has_other_splits(ident: str) -> None:
    assert config(ident).taskset.dataset_split is not None
    assert config(ident, dataset="other/rows").taskset.dataset_split is None
    assert config(ident, dataset="other/rows", dataset_split="dev").taskset.dataset_split == "dev"


@IDS
def test_recursive_opencode_plays_it(ident: str) -> None:
    found = loaders.resolve_env_config({"id": "opencode-rlm", "taskset": {"id": ident}})
    assert type(found).__name__ == "OpenCodeRLMEnvConfig"
    assert found.taskset == config(ident).taskset


def test_help_shows_the_values(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if not WHOLE:  # seconds of parsing every module of a configuration for what stands beside the values
        parser = sys.modules["pydantic_config.cli"]
        monkeypatch.setattr(parser, "_extract_field_docstrings", lambda cls: dict.fromkeys(cls.model_fields, "?"))
    with pytest.raises(SystemExit):
        main(["opencode-cp", "--help"])
    shown = " ".join("".join(" " if one in "│─╮" else one for one in capsys.readouterr().out).split())
    for value in (f"(default: {value})" for value in ("PrimeIntellect/INTELLECT-3-RL", "code", CODE, "info")):
        assert value in shown
    assert "harness.disabled_tools = ['question', 'task', 'websearch']" in shown
    for value in ("rubric.type = code-tests", "max_turns = 100", "timeout.rollout = 3600"):
        assert value in shown


def test_a_preset_leaves_the_defaults_of_what_it_is_made_of() -> None:
    assert OpenCodeTasksetConfig().dataset is None


@IDS
def test_rows_become_tasks_with_the_published_prompts(ident: str, tmp_path: Path) -> None:
    first, second = load(ident, tmp_path, PROBLEMS[ident])
    question = PROBLEMS[ident][0].row["question"]
    if ident != "opencode-cp":
        prompt = f"Solve the following problem.\n\n{question}\n\nWrite your final answer to `/app/answer.txt`."
        assert first.data.prompt == prompt
        assert first.data.answer == PROBLEMS[ident][0].row["answer"]
        return
    before = "Solve the following programming problem in Python. Available packages: Python standard library.\n\n"
    after = "\n\nSave your final solution to `/app/answer.py`."
    function = "Your solution must define the function `turned`.\n\n"
    assert first.data.prompt == f"{before}{question}{after}"
    assert second.data.prompt == f"{before}{function}Reverse a list.{after}"
    assert first.data.code_tests is not None
    assert (len(first.data.code_tests.tests), first.data.code_tests.total) == (15, 40)
    assert "40" not in json.dumps(first.data.info)
    again, _ = load(ident, tmp_path, PROBLEMS[ident], max_num_tests=40)
    assert again.data.code_tests is not None
    assert len(again.data.code_tests.tests) == 40
    assert again.data.code_tests.sampled(15, "c1") == first.data.code_tests


def test_difficulty_is_told_by_the_same_keys(tmp_path: Path) -> None:
    nameless = [Problem({k: v for k, v in one.row.items() if k != "id"}, "", "") for one in CODES]
    tasks = load("opencode-cp", tmp_path, nameless)
    keys = RowKeys(OpenCodeTasksetConfig(tests_key="info"), None)
    assert [keys.find(Row("rows", 1, one.row)).key for one in nameless] == [task.key for task in tasks]


def test_rows_without_a_rating_are_told_and_a_missing_column_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unrated = Problem({**MATHS[0].row, "id": "unrated", MATH: None}, "", "")
    bare = Problem({"question": "?", "answer": "1"}, "", "")
    with caplog.at_level(logging.INFO):
        kept = load("opencode-math", tmp_path, [*MATHS, unrated])
    assert [task.data.id for task in kept] == ["q1", "q2"]
    assert f'2 of 3 rows have "{MATH}" in [0, 1] (1 unrated, dropped)' in caplog.text
    with pytest.raises(DatasetError, match=MATH):
        load("opencode-math", tmp_path, [bare])
    (task,) = load("opencode-math", tmp_path, [bare], difficulty_key=None)
    assert task.data.answer == "1"


def test_bad_tests_are_refused_with_their_place(tmp_path: Path) -> None:
    broken = Problem({"question": "?", "info": '{"tests": {"inputs": ["1"], "outputs": []}}', CODE: 1}, "", "")
    with pytest.raises(DatasetError, match=r'rows.jsonl row 1: column "info" holds 1 inputs and 0 outputs'):
        load("opencode-cp", tmp_path, [broken])
    empty = Problem({"question": "?", "info": "{}", CODE: 1}, "", "")
    with pytest.raises(DatasetError, match="no known form"):
        load("opencode-cp", tmp_path, [empty])


def test_starter_code_stands_in_the_prompt_and_columns_that_belong_together_leave_info(tmp_path: Path) -> None:
    case = {"input": "[1]", "output": "1", "testtype": "functional"}
    row = {
        "question_content": "First?",
        "starter_code": "class Solution: ...",
        "public_test_cases": json.dumps([case]),
        "private_test_cases": json.dumps([case]),
        "metadata": '{"func_name": "first"}',
    }
    options = {"question_key": "question_content", "tests_key": "private_test_cases", "difficulty_key": None}
    (task,) = load("opencode-cp", tmp_path, [Problem(row, "", "")], **options)
    assert "It must complete this code:\n\n```python\nclass Solution: ...\n```\n\nFirst?" in task.data.prompt_text
    assert task.data.code_tests is not None
    assert task.data.code_tests.total == 2
    assert task.data.info.keys() == {"starter_code", "metadata"}
