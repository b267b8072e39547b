"""OpenCode without confinement: only by explicit setting, and what it left running is ended all the same."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptPolicy

from tests.support.replies import bash
from tests.support.rows import no_process, script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

SLEEP = f"sleep 900.{os.getpid()}"
"""This run's own: one that an earlier run's mistake left on this machine fails no other run."""


@pytest.fixture(scope="module")
def finished(shared_home: UserHome) -> FinishedEvaluation:
    """One row that leaves a process of another session behind."""
    scratch = shared_home.root / "scratch"
    (shared_home.root / "somebodys-link").symlink_to("/proc/self/cmdline")
    checks = [f"test -f {scratch}/made", no_process(SLEEP)]
    row = {"id": "free", "question": "row free: make a file", "verify": checks, "workdir": str(scratch)}
    default = {"id": "default", "question": "row default: make a file", "verify": ["test -f made"]}
    dataset = write_rows(shared_home.root / "rows.jsonl", [row, default])
    policy = ScriptPolicy(
        script("free", bash(f"touch made; pwd; setsid {SLEEP} >/dev/null 2>&1 &"), Reply(text="done")),
        script("default", bash("touch made"), Reply(text="done")),
    )
    arguments = ["opencode-env", "--env.taskset.dataset", str(dataset), "--env.sandbox.confine", "false"]
    before = outside(shared_home)
    played = asyncio.run(shared_home.play("free", policy, *arguments))
    assert outside(shared_home) == before, "a rollout left files on this machine"
    return played


def outside(home: UserHome) -> set[Path]:
    """What rollouts make outside of the user's home and is there now."""
    named = ("app", "logs", "logs/verifier", "tmp/opencode", "tmp/opencode-[0-9]*")
    runtimes = home.home.glob(".cache/verifiers/runtimes/subprocess/*")
    return {path for pattern in named for path in Path("/").glob(pattern)} | {*runtimes}


def test_it_runs_on_this_machine_when_told_so(finished: FinishedEvaluation, shared_home: UserHome) -> None:
    trace = finished.trace("free")
    assert trace.ok, trace.errors
    assert (shared_home.root / "scratch" / "made").exists()
    assert trace.info["verify"][0]["exit_code"] == 0


def test_what_others_have_in_the_temporary_directory_is_left_alone(
    finished: FinishedEvaluation, shared_home: UserHome
) -> None:
    """The agent's own one is cleared of links into /proc."""
    assert shared_home.root.is_relative_to(tempfile.gettempdir())
    assert (shared_home.root / "somebodys-link").is_symlink()


def test_the_default_work_directory_is_the_agents_and_the_verifiers(finished: FinishedEvaluation) -> None:
    assert finished.trace("default").reward == 1.0


def test_what_the_agent_left_running_is_ended_before_the_scoring(
    finished: FinishedEvaluation, shared_home: UserHome
) -> None:
    assert finished.trace("free").info["verify"][1]["exit_code"] == 0
    assert finished.trace("free").reward == 1.0
    assert shared_home.processes() == {}


def test_verifiers_warning_about_the_local_system_is_shown(finished: FinishedEvaluation) -> None:
    assert "is running in the subprocess runtime on the local system" in finished.log
