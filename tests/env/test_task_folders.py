"""A folder of task directories through `vf-eval`: the oracle solves it, an idle agent none of it."""

import asyncio
import shutil
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, Script, ScriptPolicy

from tests.env.test_podman import podman
from tests.support.light_opencode import REAL
from tests.support.replies import bash
from tests.support.user_home import FinishedEvaluation, UserHome, podman_containers
from tests.task_folders.folders import BROKEN, CONTAINERS, FOLDERS, SOLVED, oracle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

TASKS = FOLDERS / "tasks"


def oracles(folder: Path) -> ScriptPolicy:
    """A model that plays the solution of every task below a folder, told by its instruction."""
    scripts = []
    for path in sorted(folder.iterdir()):
        first = (path / "instruction.md").read_text().strip().splitlines()[0]
        steps = (bash(oracle(path)), Reply(text="done")) if (path / "solution").is_dir() else (Reply(text="done"),)
        scripts.append(Script(steps=steps, match=first))
    return ScriptPolicy(*scripts)


def played(
    home: UserHome, name: str, dataset: Path, policy: ScriptPolicy, *arguments: str, **env: str
) -> FinishedEvaluation:
    """One run over a folder."""
    words = ["opencode-env", "--env.taskset.dataset", str(dataset), "-c", "2", *arguments]
    return asyncio.run(home.play(name, policy, *words, env=env))


@pytest.fixture(scope="module")
def solved(shared_home: UserHome) -> FinishedEvaluation:
    """The tasks and the broken one, played by the oracle in the confined sandbox."""
    folder = shutil.copytree(TASKS, shared_home.root / "tasks")
    shutil.copytree(BROKEN, folder / BROKEN.name)
    return played(shared_home, "oracle", folder, oracles(folder))


def test_the_oracle_scores_one_on_every_task(solved: FinishedEvaluation, shared_home: UserHome) -> None:
    assert {name: solved.trace(name).reward for name in SOLVED} == dict.fromkeys(SOLVED, 1.0), solved.log
    assert len(SOLVED) >= 6
    assert shared_home.leftovers() == []


def test_tests_that_are_broken_are_an_error(solved: FinishedEvaluation) -> None:
    trace = solved.trace(BROKEN.name)
    assert not trace.ok
    assert trace.reward in (None, 0.0)
    assert all(reward is None for reward in trace.rewards.values())
    assert "ScoringError: " in solved.error(BROKEN.name)
    assert "no-such-test-runner" in solved.error(BROKEN.name)


def test_an_idle_agent_scores_zero(home: UserHome) -> None:
    names = ("build-report", "count-lines")  # one with a verifier of its own; test_scoring.py has them all
    for name in names:
        shutil.copytree(TASKS / name, home.root / "tasks" / name)
    idle = played(home, "idle", home.root / "tasks", ScriptPolicy.of(Reply(text="I do nothing.")))
    found = {name: (idle.trace(name).ok, idle.trace(name).reward) for name in names}
    assert found == dict.fromkeys(names, (True, 0.0)), idle.log


@pytest.mark.podman
def test_a_task_with_a_dockerfile_runs_in_podman_and_is_refused_where_there_are_no_images(
    home: UserHome, podman_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    policy = oracles(CONTAINERS)
    inside = played(home, "podman", CONTAINERS, policy, *podman("never-used"), **REAL)
    assert inside.trace("from-dockerfile").reward == 1.0, inside.log
    assert not [name for name in podman_containers() if name in inside.log]
    confined = played(home, "confined", CONTAINERS, policy)
    assert "which the local sandbox cannot give" in confined.error("from-dockerfile")
