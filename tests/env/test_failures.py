"""The failure table: what happens to a run that cannot go well, and what the user reads."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from rollout_sandbox.compat import AFTER_0_4_0

from tests.support.replies import bash
from tests.support.rows import probe, probe_arguments, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome, closed_port

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

LATE_BWRAP = """#!/bin/sh
case "$*" in *supervisor.main*) sleep 30 ;; esac
exec {bwrap} "$@"
"""
BREAKS = "echo broken >&2; exit 7"
BAD_ROWS: list[dict[str, object]] = [
    {"id": "failing-setup", "question": "row failing-setup", "answer": "1", "setup": ["true", BREAKS]},
    {"id": "wants-image", "question": "row wants-image", "answer": "1", "image": "localhost/python:3.11"},
    {"id": "sound", "question": "row sound", "verify": ["test -f made"], "workdir": "/app/deep/er"},
]


Runs = dict[str, tuple[FinishedEvaluation, str]]
"""By name, with the bodies of the requests that reached their models."""


def late_bwrap(directory: Path) -> Path:
    """A `bwrap` that is slow to start sandboxes, in a directory for PATH."""
    directory.mkdir()
    program = directory / "bwrap"
    program.write_text(LATE_BWRAP.format(bwrap=shutil.which("bwrap")))
    program.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def runs(shared_home: UserHome) -> Runs:
    """All of them, played at once."""
    home = shared_home
    empty = home.root / "empty"
    empty.mkdir()
    slow = late_bwrap(home.root / "bin")
    rows = write_rows(home.root / "one.jsonl", [probe("one")])
    bad = write_rows(home.root / "bad.jsonl", BAD_ROWS)
    foreign = probe_arguments(rows)

    async def play(
        name: str, *arguments: str, path: str | None = None, url: str = ""
    ) -> tuple[str, FinishedEvaluation, str]:
        env = {} if path is None else {"PATH": path}
        async with ScriptedModel(ScriptPolicy.of(bash("touch made"), Reply(text="done"))) as model:
            finished = await home.run(name, url or model.base_url, *arguments, env=env)
            return name, finished, "\n".join(json.dumps(request.body) for request in model.requests)

    async def play_all() -> Runs:
        plain = ["--env.taskset.id", "probe-tasks", "--env.taskset.rows", str(rows)]
        plain += ["--env.agent.harness.id", "opencode-env", "--env.agent.runtime.type", "subprocess"]
        gone = ["opencode-env", "--env.agent.runtime.type", "podman", "--env.agent.runtime.image", "x"]
        finished = await asyncio.gather(
            play("no-bubblewrap", *foreign, path=str(empty)),
            play("slow-bubblewrap", *foreign, "--env.agent.timeout.setup", "2", path=f"{slow}:/usr/bin:/bin"),
            play("seat-retries", *foreign, "--env.agent.retries.max-retries", "1"),
            play("plain-subprocess", *plain),
            play("gone-runtime", *gone),
            play("bad-rows", "opencode-env", "--env.taskset.dataset", str(bad)),
            play("dead-endpoint", *foreign, "--env.probe", "none", url=f"http://127.0.0.1:{closed_port()}/v1"),
        )
        return {name: (run, seen) for name, run, seen in finished}

    return asyncio.run(play_all())


def test_without_bubblewrap_the_run_is_refused_and_told_the_alternatives(runs: Runs) -> None:
    finished, seen = runs["no-bubblewrap"]
    assert finished.exit_code == 1
    message = finished.log.strip().splitlines()[-1]
    for part in ("bwrap is not on PATH", "apt-get install bubblewrap", "docker|podman|prime", "--env.sandbox.confine"):
        assert part in message
    assert (finished.episodes, seen) == ([], "")


def test_a_sandbox_that_does_not_come_up_in_time_is_a_sandbox_error(runs: Runs) -> None:
    finished, seen = runs["slow-bubblewrap"]
    assert finished.error("one") == "SandboxError: the sandbox was not up within 2 s (--env.agent.timeout.setup)"
    assert not finished.episode("one").ok
    assert seen == ""


def test_retries_of_the_seat_are_refused_in_favour_of_those_of_the_episode(runs: Runs) -> None:
    finished, _ = runs["seat-retries"]
    assert finished.exit_code != 0
    assert "--env.agent.retries does not apply here" in finished.log
    assert "--env.retries" in finished.log
    assert "Traceback" not in finished.log


@pytest.mark.skipif(not AFTER_0_4_0, reason="verifiers 0.4.0 has them all")
def test_a_runtime_that_verifiers_has_no_longer_is_told_what_to_use_instead(runs: Runs) -> None:
    finished, _ = runs["gone-runtime"]
    assert finished.exit_code != 0
    said = " ".join(finished.log.replace("│", " ").split())
    assert '--env.agent.runtime.type: verifiers has no "podman" after 0.4.0; use "custom" with' in said
    assert 'import_path "rollout_sandbox.PodmanBackend"' in said
    assert "Traceback" not in finished.log


def test_the_harness_alone_refuses_to_run_on_this_machine(runs: Runs) -> None:
    finished, seen = runs["plain-subprocess"]
    error = finished.error("one")
    assert error.startswith("HarnessError: OpenCode would run on this machine without confinement")
    assert "--env.id opencode-env" in error
    assert "docker | podman | prime" in error
    assert not finished.trace("one").ok
    assert seen == ""


def test_a_failing_setup_command_is_a_task_error_and_no_model_is_asked(runs: Runs) -> None:
    finished, seen = runs["bad-rows"]
    assert finished.error("failing-setup") == f"TaskError: setup command {BREAKS!r} failed (exit code 7: broken)"
    assert finished.trace("failing-setup").num_turns == 0
    assert "row sound" in seen
    assert "row failing-setup" not in seen


def test_a_row_with_an_image_is_refused_on_the_local_sandbox(runs: Runs) -> None:
    finished, seen = runs["bad-rows"]
    error = finished.error("wants-image")
    assert error.startswith("TaskError: task 1 asks for image 'localhost/python:3.11'")
    assert f"WARNING rollout failed: task=wants-image error={error}" in finished.log
    for runtime in ("docker", "podman", "prime", "modal"):
        assert runtime in error
    assert "row wants-image" not in seen


def test_bad_rows_do_not_disturb_their_neighbours(runs: Runs) -> None:
    trace = runs["bad-rows"][0].trace("sound")
    assert (trace.ok, trace.reward) == (True, 1.0)


def test_nothing_is_left_behind(runs: Runs, shared_home: UserHome) -> None:
    assert runs
    assert shared_home.leftovers() == []


def test_a_dead_endpoint_is_a_provider_error(runs: Runs) -> None:
    finished, _ = runs["dead-endpoint"]
    assert finished.error("one").startswith("ProviderError: ")
    trace = finished.trace("one")
    assert not trace.ok
    assert all(reward is None for reward in trace.rewards.values())
    assert (trace.metrics["agent_error"], trace.num_turns) == (1.0, 0)
    assert trace.metrics["model_call_errors"] == len(trace.calls) > 0
    assert trace.info["agent"]["exit_code"] == 1
