"""What is tried again: failures of the infrastructure, and what an agent did to itself only where the user says so."""

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.errors import AgentError, BrokenBackendError, BrokenUserError
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_rubrics import SandboxFileError
from opencode_simulation.errors import BrokenWorldError
from rollout_sandbox.podman import PodmanConfig
from verifiers.v1.trace import Error
from verifiers.v1.utils.retries import RetryState

from tests.support.podman import SUITES_IMAGE, base_image
from tests.support.replies import bash
from tests.support.rows import probe, probe_arguments, script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

RULE = {"type": "AgentError", "max_retries": 1}


BROUGHT_ABOUT = (AgentError, SandboxFileError, BrokenWorldError, BrokenBackendError, BrokenUserError)


def tries(retries: dict[str, Any], kind: str) -> int:
    """How often a rollout with this error is tried again, on both sides of an env server."""
    config = OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}, "retries": retries})
    sent = OpenCodeEnvConfig.model_validate(config.model_dump(mode="json"))
    assert sent.retries == config.retries
    state = RetryState(sent.retries)
    return sum(state.next_error([Error(type=kind, message="x")]) is not None for _ in range(10))


@pytest.mark.parametrize(
    ("retries", "own", "other"),
    [
        ({}, 0, 0),
        ({"max_retries": 2}, 0, 2),
        ({"max_retries": 2, "rules": [{"type": "SandboxError", "max_retries": 5}]}, 0, 2),
        ({"max_retries": 2, "rules": [RULE]}, 1, 2),
        ({"rules": [{"message": "x", "max_retries": 3}]}, 3, 3),
    ],
)
def test_an_agents_own_error_is_tried_again_only_by_a_rule_that_matches_it(
    retries: dict[str, Any], own: int, other: int
) -> None:
    assert (tries(retries, "AgentError"), tries(retries, "HarnessError")) == (own, other)


@pytest.mark.parametrize("kind", BROUGHT_ABOUT)
def test_what_an_agent_can_bring_about_is_not_tried_again(kind: type[Exception]) -> None:
    assert tries({"max_retries": 2}, kind.__name__) == 0
    assert tries({"max_retries": 2, "rules": [{"type": kind.__name__, "max_retries": 1}]}, kind.__name__) == 1


def test_the_default_alone_tries_nothing_again() -> None:
    assert RetryState(OpenCodeEnvConfig().retries).max_retries == 0


@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
@pytest.mark.parametrize(("rules", "starts"), [((), 1), (("--env.retries.rules", f"[{RULE}]".replace("'", '"')), 2)])
def test_an_agent_that_kills_its_opencode_gets_no_second_try(home: UserHome, rules: Iterable[str], starts: int) -> None:
    rows = write_rows(home.root / "rows.jsonl", [probe("one")])

    async def run() -> tuple[FinishedEvaluation, int]:
        async with ScriptedModel(ScriptPolicy.of(bash("pkill -9 opencode; kill -9 $PPID"), Reply(text="x"))) as model:
            unscored = ("--env.agent-errors", "error")
            arguments = [*probe_arguments(rows), *unscored, "--env.retries.max-retries", "2", *rules]
            finished = await home.run("killed", model.base_url, *arguments)
            return finished, len(model.requests)

    finished, requests = asyncio.run(run())
    assert finished.error("one").startswith("AgentError: OpenCode was killed or crashed")
    assert requests == starts


PICKY = """
import json
from typing import Literal
import verifiers.v1 as vf
from opencode_rubrics import Rubric, RubricConfig, read_file

class PickyConfig(RubricConfig):
    type: Literal["picky"] = "picky"

class Picky(Rubric[PickyConfig]):
    @vf.reward
    async def picky(self, trace, runtime):
        if (await runtime.run(["test", "-e", "/app/made"], {})).exit_code == 0:
            json.loads(await read_file(runtime, "/app/made"))
        return json.loads(trace.last_reply)
"""
"""Somebody's rubric, which parses what the agent left and said, and prepares nothing."""


@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
def test_a_sample_that_cannot_be_scored_is_a_zero_at_once_and_no_second_try(home: UserHome) -> None:
    (home.root / "picky_rubrics.py").write_text(PICKY)
    picky = {"type": "picky_rubrics:Picky"}
    rows: list[dict[str, object]] = [
        {"id": name, "question": f"row {name}: x", "answer": "1", "rubric": rubric}
        for name, rubric in {"reply": picky, "file": picky, "link": picky, "fine": picky}.items()
    ]
    dataset = write_rows(home.root / "rows.jsonl", rows)
    scripts = (
        script("reply", Reply(text="{")),
        script("file", bash("echo '[' > made"), Reply(text="1")),
        script("link", bash("mkfifo made"), Reply(text="1")),
        script("fine", Reply(text="1")),
    )

    async def run() -> tuple[FinishedEvaluation, int]:
        async with ScriptedModel(ScriptPolicy(*scripts)) as model:
            arguments = ["opencode-env", "--env.taskset.dataset", str(dataset), "--env.retries.max-retries", "4"]
            path = {"PYTHONPATH": str(home.root)}
            return await home.run("picky", model.base_url, *arguments, env=path), len(model.requests)

    finished, requests = asyncio.run(run())
    assert finished.exit_code == 0, finished.log
    traces = {name: finished.trace(name) for name in ("reply", "file", "link", "fine")}
    rewards = {name: trace.reward for name, trace in traces.items()}
    assert rewards == {"reply": 0, "file": 0, "link": 0, "fine": 1}
    unread = {name: trace.metrics["answer_unreadable"] for name, trace in traces.items()}
    assert unread == {"reply": 1, "file": 1, "link": 1, "fine": 0}
    assert requests == 6


PLACES = {
    "run": {},
    "hook": {"after": "exec sleep 4242"},
    "score": {"check": "exec sleep 4242"},
    "setup": {"before": "exec sleep 4242"},
}
"""Where a rollout's container ends: where this command runs."""


async def end_containers(ended: set[str]) -> None:
    """End every container in which the command runs."""
    while True:
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{name}/cmdline").read_bytes() == b"sleep\x004242\0":
                    container = re.search(r"libpod-([0-9a-f]{64})", Path(f"/proc/{name}/cgroup").read_text())
                    assert container is not None
                    await asyncio.to_thread(subprocess.run, ["podman", "kill", container[1]], capture_output=True)
                    ended.add(container[1])
        await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.podman
@pytest.mark.usefixtures("light_opencode", "podman_image")
def test_a_container_that_ends_after_a_tool_call_gets_no_second_try_wherever_that_is_seen(home: UserHome) -> None:
    rows = write_rows(home.root / "rows.jsonl", [probe(name, **fields) for name, fields in PLACES.items()])
    scripts = [script(name, bash("exec sleep 4242" if name == "run" else "true"), Reply(text="x")) for name in PLACES]
    chosen = PodmanConfig(image=base_image(SUITES_IMAGE)).model_dump(include={"type", "import_path", "image"})
    runtime = [
        word for key, value in chosen.items() for word in (f"--env.agent.runtime.{key.replace('_', '-')}", value)
    ]

    async def run() -> tuple[FinishedEvaluation, int]:
        ended: set[str] = set()
        async with ScriptedModel(ScriptPolicy(*scripts)) as model:
            ending = asyncio.create_task(end_containers(ended))
            try:
                arguments = [*probe_arguments(rows), *runtime, "--env.retries.max-retries", "1", "-c", "4"]
                return await home.run("ended", model.base_url, *arguments), len(ended)
            finally:
                ending.cancel()

    finished, ended = asyncio.run(run())
    kinds = {name: finished.error(name).partition(":")[0] for name in PLACES}
    assert kinds == dict.fromkeys(PLACES, "SandboxEndedError") | {"setup": "SandboxError"}, finished.log
    assert ended == len(PLACES) + 1, "one try each, and a second where no program of the agent's had run"
