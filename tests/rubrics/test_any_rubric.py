"""A rubric of another package is used by its id like one of ours: on the command line, in files, rows and groups."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_env.taskset import DatasetError, OpenCodeTaskConfig, OpenCodeTasksetConfig
from opencode_rubrics import (
    AnswerConfig,
    AnyRubricConfig,
    RemoteHybridMathConfig,
    RubricConfig,
    RubricGroupConfig,
    live_rubric,
    rubrics_in_use,
)
from opencode_rubrics.registry import OWN_RUBRICS, rubric_class
from pydantic import TypeAdapter, ValidationError
from pydantic_config import cli

from tests.rubrics.math_support import score
from tests.rubrics.third_party_rubric import GenerousRubric, LengthConfig, WordsConfig
from tests.support.programs import finished, own_variables
from tests.support.user_home import UserHome
from tests.taskset.files import row, tasks, write_jsonl, write_parquet
from tests.test_structure import ROOT

HERE = "tests.rubrics.third_party_rubric"
LENGTH, WORDS, GENEROUS = f"{HERE}:LengthRubric", f"{HERE}:WordsRubric", f"{HERE}:GenerousRubric"
ADAPTER: TypeAdapter[RubricConfig] = TypeAdapter(AnyRubricConfig)


def read(**fields: Any) -> RubricConfig:
    return ADAPTER.validate_python(fields)


def length(most: int, ident: str = LENGTH) -> RubricConfig:
    """The configuration of `LengthRubric` as read by an id."""
    return LengthConfig(most=most).model_copy(update={"type": ident})


def announce(directory: Path, package: str, *lines: str) -> None:
    """An installed package with entry points, as an installer leaves it."""
    installed = directory / f"{package}-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("\n".join(["[opencode_rubrics]", *lines, ""]))


def test_our_own_ids_are_those_of_their_configurations() -> None:
    for ident in OWN_RUBRICS:
        config_type = rubric_class(ident).config_type()
        assert config_type is not None
        assert config_type.model_fields["type"].default == ident


def test_a_rubric_on_the_command_line_takes_the_options_of_its_own_class(tmp_path: Path) -> None:
    def parsed(words: list[str]) -> RubricConfig | None:
        return cli(OpenCodeTasksetConfig, args=words).task.rubric

    prefix = "--task.rubric"
    assert parsed([f"{prefix}.type", LENGTH, f"{prefix}.most", "5"]) == length(5)
    options = [f"{prefix}.type={WORDS}", f"{prefix}.words", '["a", "b"]', f"{prefix}.version=1.0", f"{prefix}.strict"]
    assert parsed(options) == WordsConfig(type=WORDS, words=["a", "b"], version="1.0", strict=True)
    file = tmp_path / "run.toml"
    file.write_text(f'[task.rubric]\ntype = "{LENGTH}"\nmost = 3\n')
    assert parsed(["@", str(file)]) == length(3)
    assert parsed(["@", str(file), f"{prefix}.most", "4"]) == length(4)
    members = json.dumps([{"rubric": {"type": LENGTH, "most": 2}, "weight": 0.5}, {"rubric": {"type": "answer"}}])
    assert isinstance(parsed([f"{prefix}.type", "group", f"{prefix}.members", members]), RubricGroupConfig)
    ours = [f"{prefix}.type=remote-hybrid-math", f"{prefix}.scorer-timeout", "12", f"{prefix}.judge-model", "m"]
    assert parsed(ours) == RemoteHybridMathConfig(scorer_timeout=12, judge_model="m")


@pytest.mark.usefixtures("programs")
def test_a_configuration_travels_to_another_process_and_finds_its_rubric_there(tmp_path: Path) -> None:
    configs: list[dict[str, Any]] = [
        {"type": LENGTH, "most": 7},
        {"type": WORDS, "words": ["x"]},
        {"type": "group", "members": [{"rubric": {"type": LENGTH, "most": 7}, "weight": 2.0}]},
        {"type": "group", "members": [{"rubric": {"type": "remote-hybrid-math"}, "weight": 2}]},
        {"type": "answer", "answer_path": "/a"},
        {"type": "hybrid-math", "answer_source": "file"},
        {"type": "remote-hybrid-math", "scorer_timeout": 7},
    ]
    wires = []
    for config in configs:
        task = OpenCodeTasksetConfig(task=OpenCodeTaskConfig(rubric=read(**config)))
        wires.append(task.model_dump_json())
        assert OpenCodeTasksetConfig.model_validate_json(wires[-1]) == task
        assert OpenCodeTasksetConfig.model_validate(task.model_dump(mode="json", exclude_unset=True)) == task
    program = (
        "import sys; from opencode_env.taskset import OpenCodeTasksetConfig as C; from opencode_rubrics import *\n"
        "for wire in sys.argv[1:]:\n"
        "    config = C.model_validate_json(wire); print(config.model_dump_json())\n"
        "    live_rubric(config.task.rubric)"
    )
    (tmp_path / "travels.py").write_text(program)
    done = finished([sys.executable, "travels.py", *wires], tmp_path, own_variables(PYTHONPATH=str(ROOT)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == wires


async def test_it_scores_with_its_options_and_equal_ones_share_a_rubric() -> None:
    async with rubrics_in_use():
        assert (await score(live_rubric(read(type=LENGTH, most=2)), None, "4", "12")).reward == 1.0
        assert (await score(live_rubric(read(type=LENGTH, most=2)), None, "4", "123")).reward == 0.0
        assert live_rubric(read(type=LENGTH, most=2)) is live_rubric(read(type=LENGTH, most=2))


async def test_a_rubric_of_ours_that_somebody_changed_is_theirs_under_its_own_id() -> None:
    async with rubrics_in_use():
        changed = live_rubric(read(type=GENEROUS))
        assert type(changed) is GenerousRubric
        assert changed.config == AnswerConfig().model_copy(update={"type": GENEROUS})
        assert type(live_rubric(read(type="answer"))) is not GenerousRubric


async def test_the_name_of_an_entry_point_is_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path, "short_rubrics", f"short-replies = {LENGTH}", f"answer = {LENGTH}")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = read(type="short-replies", most=2)
    assert config == length(2, "short-replies")
    assert isinstance(read(type="answer"), AnswerConfig)
    async with rubrics_in_use():
        assert (await score(live_rubric(config), None, "4", "12")).reward == 1.0


def test_an_unknown_id_is_refused_with_all_that_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path, "known_rubrics", f"known-one = {LENGTH}", f"twice = {LENGTH}")
    announce(tmp_path / "more", "more_rubrics", f"twice = {WORDS}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    ours = "answer, code-tests, environment-return, group, hybrid-math"
    with pytest.raises(ValidationError, match=rf'no rubric "anwser": ours are {ours}.*known-one'):
        OpenCodeTaskConfig.model_validate({"rubric": {"type": "anwser"}})
    with pytest.raises(ValidationError, match=f'several packages announce the rubric "twice": write {LENGTH} or'):
        read(type="twice")


@pytest.mark.parametrize(
    ("fields", "place", "problem"),
    [
        ({"type": LENGTH, "least": 2}, ("rubric", "least"), "Extra inputs"),
        ({"type": LENGTH, "most": "many"}, ("rubric", "most"), "valid integer"),
        ({"type": WORDS, "words": "[1"}, ("rubric", "words"), "valid list"),
        ({"type": f"{HERE}:NoRubric"}, ("rubric",), "is not a rubric class"),
        ({"type": "opencode_rubrics.hybrid_math:MathRubric"}, ("rubric",), "is not a rubric class"),
        ({"type": f"{HERE}:Missing"}, ("rubric",), "cannot be imported"),
        ({"type": ".relative:Rubric"}, ("rubric",), "cannot be imported"),
        ({"type": "no_such_package:Rubric"}, ("rubric",), "cannot be imported"),
        ({"type": "tests.rubrics.breaks_at_import:Rubric"}, ("rubric",), "cannot be imported: this module breaks"),
        ({"type": True}, ("rubric",), "needs a `type`"),
        ({"most": 2}, ("rubric",), "needs a `type`: answer, code-tests, environment-return, group"),
        ("answer", ("rubric",), "valid dictionary"),
    ],
)
def test_a_wrong_configuration_is_refused_where_it_is_wrong(fields: object, place: tuple[str], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as caught:
        OpenCodeTaskConfig.model_validate({"rubric": fields})
    assert caught.value.errors()[0]["loc"] == place


def test_a_configuration_made_in_python_names_its_rubric() -> None:
    with pytest.raises(ValidationError, match='WordsConfig says not which rubric it is for: give it type="module:Clas'):
        OpenCodeTaskConfig(rubric=WordsConfig(words=["a"]))
    assert OpenCodeTaskConfig(rubric=WordsConfig(type=WORDS)).rubric == read(type=WORDS)


def test_a_group_takes_any_rubric_but_a_group() -> None:
    inner = {"type": "group", "members": [{"rubric": {"type": "answer"}}]}
    with pytest.raises(ValidationError, match="a group cannot be a member of a group"):
        read(type="group", members=[{"rubric": inner}])


def test_a_row_brings_another_packages_rubric(tmp_path: Path) -> None:
    rows = [row(1, rubric={"type": LENGTH, "most": 4}), row(2, rubric={"type": WORDS, "words": ["a"]}), row(3)]
    for file in (write_jsonl(tmp_path / "rows.jsonl", rows), write_parquet(tmp_path / "rows.parquet", rows)):
        first, second, third = tasks(file)
        assert first.rubric_config == length(4)
        assert second.rubric_config == WordsConfig(type=WORDS, words=["a"])
        assert third.rubric_config == AnswerConfig()


@pytest.mark.parametrize(
    ("rubric", "problem"),
    [
        ({"type": "anwser"}, "is not a rubric configuration: Value error, there is no rubric"),
        ({"type": LENGTH, "most": "many"}, "is not a rubric configuration: most: Input should be a valid integer"),
        ({"type": "group", "members": [{"rubric": {"type": LENGTH, "x": 1}}]}, "members.0.rubric.x: Extra inputs"),
    ],
)
def test_a_rows_wrong_rubric_is_named_by_file_row_and_column(
    tmp_path: Path, rubric: dict[str, Any], problem: str
) -> None:
    file = write_jsonl(tmp_path / "rows.jsonl", [row(1), row(2, rubric=rubric)])
    with pytest.raises(DatasetError) as caught:
        tasks(file)
    assert str(caught.value).startswith(f'{file} row 2: column "rubric" ')
    assert problem in str(caught.value)


@pytest.mark.usefixtures("light_opencode")
def test_vf_eval_takes_another_packages_rubric_by_its_entry_point(tmp_path: Path) -> None:
    announce(tmp_path / "site", "replies", "short-reply = short_reply:ShortReply")
    (tmp_path / "site" / "short_reply.py").write_text(
        "import verifiers.v1 as vf\n"
        "from opencode_rubrics import Rubric, RubricConfig\n"
        "class ShortConfig(RubricConfig):\n    most: int = 400\n"
        "class ShortReply(Rubric[ShortConfig]):\n"
        "    @vf.reward\n    async def short(self, trace) -> float:\n"
        "        return float(len(trace.last_reply) <= self.config.most)\n"
    )
    home = UserHome(tmp_path / "user")
    rows = write_jsonl(tmp_path / "rows.jsonl", [row(1, id="one")])
    chosen = ["--env.taskset.task.rubric.type", "short-reply", "--env.taskset.task.rubric.most", "4"]

    async def play(name: str, reply: str) -> float:
        async with ScriptedModel(ScriptPolicy.of(Reply(text=reply))) as model:
            options = ["opencode-env", "--env.taskset.dataset", str(rows), *chosen]
            finished = await home.run(name, model.base_url, *options, env={"PYTHONPATH": str(tmp_path / "site")})
        trace = finished.trace("one")
        assert trace.rewards.keys() == {"short"}, finished.log
        return trace.reward

    assert asyncio.run(play("short", "two")) == 1.0
    assert asyncio.run(play("long", "twenty-two")) == 0.0
