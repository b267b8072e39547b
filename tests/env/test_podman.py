"""The same two ways to run OpenCode in podman containers: through our environment, and the harness alone."""

import asyncio
import json
import re
from collections.abc import Sequence

import pytest
from opencode_env.samples import SAMPLES_PATH
from opencode_env.scripted_model import Reply, SamplesPolicy, ScriptPolicy
from rollout_sandbox.podman import PodmanConfig

from tests.support.replies import bash
from tests.support.rows import probe, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome, podman_containers

pytestmark = [pytest.mark.opencode, pytest.mark.podman, pytest.mark.slow]

SAMPLES = ("count-errors", "rotate-logs")
"""Samples that need no more than sh, coreutils and the programs that OpenCode brings."""


def podman(image: str) -> Sequence[str]:
    """The seat's runtime, as users of this version of verifiers name it."""
    named = PodmanConfig(image=image).model_dump(include={"type", "import_path", "image"})
    flags = {f"--env.agent.runtime.{name.replace('_', '-')}": value for name, value in named.items()}
    return [word for flag in flags.items() for word in flag]


@pytest.fixture(scope="module")
def runs(shared_home: UserHome, podman_image: str) -> dict[str, FinishedEvaluation]:
    """The samples through our environment, and a foreign taskset with nothing of ours but the harness."""
    home = shared_home
    samples = [json.loads(line) for line in SAMPLES_PATH.read_text().splitlines()]
    dataset = write_rows(home.root / "samples.jsonl", [row for row in samples if row["id"] in SAMPLES])
    rows = write_rows(home.root / "rows.jsonl", [probe("alone", check="test -f /app/made")])

    through_env = ["opencode-env", "--env.taskset.dataset", str(dataset), "-c", "2", *podman(podman_image)]
    foreign = ["--env.taskset.id", "probe-tasks", "--env.taskset.rows", str(rows)]
    harness_alone = [*foreign, "--env.agent.harness.id", "opencode-env", *podman(podman_image)]

    async def both() -> dict[str, FinishedEvaluation]:
        made = ScriptPolicy.of(bash("touch made"), Reply(text="done"))
        played, alone = await asyncio.gather(
            home.play("samples", SamplesPolicy(1.0), *through_env), home.play("alone", made, *harness_alone)
        )
        return {"samples": played, "alone": alone}

    return asyncio.run(both())


def test_the_samples_are_solved_in_containers(runs: dict[str, FinishedEvaluation]) -> None:
    finished = runs["samples"]
    assert finished.exit_code == 0, finished.log
    for name in SAMPLES:
        trace = finished.trace(name)
        assert (trace.ok, trace.reward) == (True, 1.0), trace.errors
        assert trace.info["agent"]["exit_code"] == 0
        assert trace.agent is not None
        assert isinstance(trace.agent.config.runtime, PodmanConfig)
    assert len(finished.lines) == len(SAMPLES)


def test_the_harness_alone_runs_on_a_foreign_taskset_in_a_container(runs: dict[str, FinishedEvaluation]) -> None:
    finished = runs["alone"]
    trace = finished.trace("alone")
    assert (trace.ok, trace.reward) == (True, 1.0), finished.log
    assert trace.info["agent"]["outcome"] == "completed"
    assert finished.lines == []


def test_a_borrowed_container_is_removed_by_its_owner(
    runs: dict[str, FinishedEvaluation], shared_home: UserHome
) -> None:
    """verifiers marks the box of a borrowed run, and its container runtimes never remove a box with that mark."""
    names = {
        trace.agent.runtime.id
        for finished in runs.values()
        for episode in finished.episodes
        for trace in episode.traces
        if trace.agent is not None and trace.agent.runtime is not None
    }
    assert len(names) == len(SAMPLES) + 1
    left = podman_containers()
    assert not [name for name in left if any(str(own).startswith(name) or name in str(own) for own in names)], left
    assert shared_home.leftovers() == []


def test_a_run_in_containers_needs_no_bubblewrap(runs: dict[str, FinishedEvaluation]) -> None:
    assert not re.search("bwrap|bubblewrap", runs["samples"].log)
