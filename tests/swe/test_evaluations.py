"""`vf-eval opencode-swe` with real OpenCode: in confined sandboxes, with recursive OpenCode, and in containers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel
from opencode_env.scripted_model.request import ChatRequest

from tests.env.test_podman import podman
from tests.support.podman import SUITES_IMAGE, Unavailable, base_image
from tests.support.replies import call
from tests.support.user_home import Finished, UserHome
from tests.swe.playing import patching, write_rows
from tests.swe.repositories import CALCULATOR, SLUGS, Repository, made, r2e, rebench, swelego

pytestmark = [pytest.mark.opencode, pytest.mark.slow]


@dataclass(frozen=True)
class Case:
    """What the agent does with which row, and what it earns."""

    row: Mapping[str, object]
    script: str
    reward: float


def cases(repository: Repository, form: object, *, image: str = "") -> list[Case]:
    """The gold patch, nothing, half the gold patch, and a conftest that says all is well."""
    found = made(repository)
    row = form(repository)  # type: ignore[operator]
    if image:
        row |= {"image_name": image, "docker_image": image}
    cheat = "printf 'import pytest\\ndef pytest_runtest_call(item):\\n    item.runtest = lambda: None\\n' > conftest.py"
    scripts = {"gold": (patching(found.gold), 1.0), "half": (patching(found.half), 0.0)}
    scripts |= {"untouched": ("true", 0.0), "cheat": (cheat, 0.0)}
    return [
        Case(
            {
                **row,
                "instance_id": f"{row['instance_id']}-{name}",
                "problem_statement": f"Task {row['instance_id']}-{name}.",
            },
            *script,
        )
        for name, script in scripts.items()
    ]


class Policy:
    """Runs the script of the case that the question names, with OpenCode's `bash`."""

    def __init__(self, played: Sequence[Case]) -> None:
        self._played = played

    def __call__(self, request: ChatRequest, /) -> Reply:
        (case,) = [one for one in self._played if str(one.row["problem_statement"]) in request.prompt]
        return Reply(text="done") if request.turn else call("bash", command=case.script, description="work")


def run(home: UserHome, name: str, played: Sequence[Case], *options: str) -> Finished:
    """One evaluation of these cases."""
    rows = write_rows([dict(case.row) for case in played], home.root / f"{name}.jsonl")

    async def evaluated() -> Finished:
        async with ScriptedModel(Policy(played)) as model:
            return await home.run(
                name, model.base_url, "opencode-swe", "--env.taskset.dataset", str(rows), "-c", "2", *options
            )

    return asyncio.run(evaluated())


def assert_scored(finished: Finished, played: Sequence[Case]) -> None:
    """Every case earned what it should, without an error."""
    assert finished.exit_code == 0, finished.log
    assert all(episode.ok for episode in finished.episodes), finished.log
    rewards = {episode.task.data.id: episode.traces[0].reward for episode in finished.episodes}
    assert rewards == {str(case.row["instance_id"]): case.reward for case in played}, finished.log


def test_rows_without_an_image_are_played_in_the_confined_sandbox(shared_home: UserHome) -> None:
    played = cases(CALCULATOR, swelego)
    finished = run(shared_home, "confined", played)
    assert_scored(finished, played)
    by_name = {str(episode.task.data.id): episode.traces[0] for episode in finished.episodes}
    assert by_name["calculator-swelego-cheat"].metrics["dropped_test_files"] == 1.0
    assert by_name["calculator-swelego-gold"].info["swe"]["patch"].startswith("diff --git a/calc/more.py")
    assert shared_home.leftovers() == []


def test_recursive_opencode_plays_them_too(shared_home: UserHome) -> None:
    played = cases(CALCULATOR, r2e)[:1]
    assert_scored(run(shared_home, "rlm", played, "--env.id", "opencode-rlm"), played)


@pytest.mark.podman
def test_rows_with_an_image_are_played_in_containers(shared_home: UserHome, podman_image: str) -> None:
    try:
        image = base_image(SUITES_IMAGE)
    except Unavailable as error:
        pytest.fail(str(error))
    played = cases(SLUGS, rebench, image=image)
    assert_scored(run(shared_home, "podman", played, *podman(image)), played)
