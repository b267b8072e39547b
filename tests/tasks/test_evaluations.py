"""`vf-eval` of the environments by name with a light agent: right answers score 1, wrong and absent ones 0."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel
from opencode_env.scripted_model.request import ChatRequest

from tests.env.test_podman import podman
from tests.support.light_opencode import REAL
from tests.support.replies import bash
from tests.support.user_home import Finished, UserHome
from tests.tasks.problems import ANSWERS, PROBLEMS, Problem, write_rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

PLAYED = {
    "opencode-math": ((0, "gold"), (1, "untouched")),
    "opencode-science": ((0, "gold"), (1, "wrong")),
    "opencode-cp": ((0, "gold"), (1, "gold"), (1, "wrong"), (0, "untouched")),
}
"""What is written for which problem."""


def rows_of(ident: str, *chosen: int) -> list[Problem]:
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
        self._rows = rows_of(ident)

    def __call__(self, request: ChatRequest, /) -> Reply:
        (found,) = [one for one in self._rows if one.row["question"] in request.prompt]
        kind = found.row["id"].rpartition("-")[2]
        if request.turn or kind == "untouched":
            return Reply(text="done")
        return bash(f"cat > {self._path} <<'END'\n{getattr(found, kind)}\nEND")


async def run(home: UserHome, name: str, ident: str, *options: str, chosen: Sequence[int] = (), **env: str) -> Finished:
    """One evaluation of an environment by its id."""
    rows = write_rows(home.root / f"{name}.jsonl", rows_of(ident, *chosen))
    local = ["--env.taskset.dataset", str(rows), "--env.taskset.dataset-subset", "None"]
    local += ["--env.taskset.dataset-split", "None"]
    async with ScriptedModel(Policy(ident)) as model:
        return await home.run(name, model.base_url, ident, *local, "-c", "2", *options, env=env)


@pytest.fixture(scope="module")
def runs(shared_home: UserHome) -> dict[str, Finished]:
    """Every environment in confined sandboxes, and one of them played by recursive OpenCode."""

    async def played() -> dict[str, Finished]:
        found = {ident: await run(shared_home, ident, ident) for ident in PROBLEMS}
        recursive = await run(shared_home, "rlm", "opencode-cp", "--env.id", "opencode-rlm", chosen=[1], **REAL)
        return {**found, "rlm": recursive}

    return asyncio.run(played())


@pytest.fixture(scope="module")
def in_podman(shared_home: UserHome, podman_image: str) -> Finished:
    """Programming problems in containers whose agent is root: programs run in containers of their own."""
    return asyncio.run(run(shared_home, "podman", "opencode-cp", *podman(podman_image), chosen=[0, 1, 3], **REAL))


def assert_scored(finished: Finished, count: int) -> None:
    assert finished.exit_code == 0, finished.log
    rewards = {episode.task.data.id: episode.traces[0].reward for episode in finished.episodes}
    assert all(episode.ok for episode in finished.episodes), finished.log
    assert rewards == {name: float(str(name).endswith("-gold")) for name in rewards}, finished.log
    assert len(rewards) == count


@pytest.mark.parametrize("name", [*PROBLEMS, "rlm"])
def test_right_answers_score_one_and_others_zero(runs: dict[str, Finished], shared_home: UserHome, name: str) -> None:
    assert_scored(runs[name], len(PLAYED.get(name, "1")))
    assert shared_home.leftovers() == []


@pytest.mark.podman
def test_programming_problems_do_in_containers_too(in_podman: Finished) -> None:
    assert_scored(in_podman, 3)


def test_the_agent_was_told_where_to_write_and_every_test_counts(runs: dict[str, Finished]) -> None:
    for episode in runs["opencode-cp"].episodes:
        trace = episode.traces[0]
        assert trace.metrics["num_test_cases"] == (15 if str(episode.task.data.id).startswith("c1") else 3)
        assert "/app/answer.py" in str(trace.nodes[0].message) + str(trace.nodes[1].message)


def test_rows_and_ratings_are_told(runs: dict[str, Finished]) -> None:
    assert '2 of 2 rows have "avg@8_qwen3_4b_thinking_2507" in [0, 1] (0 unrated, dropped)' in runs["opencode-math"].log
