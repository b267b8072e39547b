"""`vf-eval` of the environments by name with a light agent: right answers score 1, wrong and absent ones 0."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest
from opencode_math import OpenCodeMathTaskset, OpenCodeMathTasksetConfig
from opencode_runs.difficulty.__main__ import main as difficulty

from tests.env.test_podman import podman
from tests.support.podman import SUITES_IMAGE, base_image
from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.support.user_home import FinishedEvaluation, UserHome
from tests.tasks.problems import ANSWERS, PROBLEMS, Problem

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

PLAYED = {
    "opencode-math": ((0, "gold"), (1, "untouched")),
    "opencode-science": ((0, "gold"), (1, "wrong")),
    "opencode-cp": ((0, "gold"), (1, "gold"), (1, "wrong"), (0, "untouched")),
}
"""What is written for which problem."""
IN_PODMAN = {"opencode-math": (0, 1), "opencode-science": (0,), "opencode-cp": (1, 3)}
"""Which of them are played in containers: right and untouched ones."""


def problems_of(ident: str, *chosen: int) -> list[Problem]:
    """A row for each answer that is played, or for the chosen ones."""
    found = []
    for number, kind in PLAYED[ident]:
        one = PROBLEMS[ident][number]
        changed = {"id": f"{one.row['id']}-{kind}", "question": f"{one.row['question']} ({kind})"}
        found.append(replace(one, row={**one.row, **changed}))
    return [found[index] for index in chosen] or found


class Policy:
    """Writes the answer that the question's last word asks for."""

    def __init__(self, ident: str) -> None:
        self._path = f"/app/{ANSWERS[ident]}"
        self._problems = problems_of(ident)

    def __call__(self, request: ChatRequest, /) -> Reply:
        (found,) = [one for one in self._problems if one.row["question"] in request.prompt]
        kind = found.row["id"].rpartition("-")[2]
        if request.turn or kind == "untouched":
            return Reply(text="done")
        return bash(f"cat > {self._path} <<'END'\n{getattr(found, kind)}\nEND")


async def run(home: UserHome, name: str, ident: str, *options: str, chosen: Sequence[int] = ()) -> FinishedEvaluation:
    """One evaluation of an environment by its id."""
    rows = write_rows(home.root / f"{name}.jsonl", [one.row for one in problems_of(ident, *chosen)])
    local = ["--env.taskset.dataset", str(rows), "--env.taskset.dataset-subset", "None"]
    local += ["--env.taskset.dataset-split", "None"]
    async with ScriptedModel(Policy(ident)) as model:
        return await home.run(name, model.base_url, ident, *local, "-c", "2", *options)


@pytest.fixture(scope="module")
def runs(shared_home: UserHome) -> dict[str, FinishedEvaluation]:
    """Every environment in confined sandboxes, and one of them played by recursive OpenCode."""

    async def played() -> dict[str, FinishedEvaluation]:
        found = {ident: await run(shared_home, ident, ident) for ident in PROBLEMS}
        recursive = await run(shared_home, "rlm", "opencode-cp", "--env.id", "opencode-rlm", chosen=[1])
        return {**found, "rlm": recursive}

    return asyncio.run(played())


@pytest.fixture(scope="module")
def in_podman(shared_home: UserHome, podman_image: str) -> dict[str, FinishedEvaluation]:
    """Every environment in containers whose agent is root: answers are judged elsewhere."""
    image = podman(base_image(SUITES_IMAGE))

    async def played() -> dict[str, FinishedEvaluation]:
        return {
            ident: await run(shared_home, f"podman-{ident}", ident, *image, chosen=chosen)
            for ident, chosen in IN_PODMAN.items()
        }

    return asyncio.run(played())


def assert_scored(finished: FinishedEvaluation, count: int) -> None:
    assert finished.exit_code == 0, finished.log
    rewards = {episode.task.data.id: episode.traces[0].reward for episode in finished.episodes}
    assert all(episode.ok for episode in finished.episodes), finished.log
    assert rewards == {name: float(str(name).endswith("-gold")) for name in rewards}, finished.log
    assert len(rewards) == count


@pytest.mark.parametrize("name", [*PROBLEMS, "rlm"])
def test_right_answers_score_one_and_others_zero(
    runs: dict[str, FinishedEvaluation], shared_home: UserHome, name: str
) -> None:
    assert_scored(runs[name], len(PLAYED.get(name, "1")))
    assert shared_home.leftovers() == []


@pytest.mark.podman
@pytest.mark.parametrize("ident", IN_PODMAN)
def test_right_answers_score_one_and_others_zero_in_containers(
    in_podman: dict[str, FinishedEvaluation], ident: str
) -> None:
    assert_scored(in_podman[ident], len(IN_PODMAN[ident]))


def test_difficulty_rates_and_filters_a_run_by_name(
    runs: dict[str, FinishedEvaluation], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, output = runs["opencode-math"].directory, tmp_path / "rated.parquet"
    dataset = write_rows(tmp_path / "rows.jsonl", [one.row for one in problems_of("opencode-math")])
    assert difficulty(["rate", str(run), "--json"]) == 0
    (rated,) = json.loads(capsys.readouterr().out)["sources"]
    assert (rated["attempts"], rated["errors"], rated["avg_reward"]) == (2, 0, 0.5)
    assert difficulty(["join", str(dataset), str(run), "-o", str(output)]) == 0
    options = {"dataset_subset": None, "dataset_split": None, "difficulty_key": "avg_reward", "min_avg_reward": 0.5}
    config = OpenCodeMathTasksetConfig.model_validate({"dataset": str(output), **options})
    assert [task.data.id for task in OpenCodeMathTaskset(config).load()] == ["q1-gold"]


def test_the_agent_was_told_where_to_write_and_every_test_counts(runs: dict[str, FinishedEvaluation]) -> None:
    for episode in runs["opencode-cp"].episodes:
        trace = episode.traces[0]
        assert trace.metrics["num_test_cases"] == (15 if str(episode.task.data.id).startswith("c1") else 3)
        assert "/app/answer.py" in str(trace.nodes[0].message) + str(trace.nodes[1].message)


def test_rows_and_ratings_are_told(runs: dict[str, FinishedEvaluation]) -> None:
    assert '2 of 2 rows have "avg@8_qwen3_4b_thinking_2507" in [0, 1] (0 unrated, dropped)' in runs["opencode-math"].log
