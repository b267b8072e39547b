"""A failure of the infrastructure is the typed error of its boundary, with the log's tail, and never a score."""

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agent_sandbox.confined import Bind
from agent_sandbox.conformance.promises import runs
from agent_sandbox.verifiers_040 import backend_of
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from verifiers.v1.runtimes import Runtime

from tests.support.machine import assert_no_longer
from tests.support.places import Confined, Place
from tests.support.replies import bash, fault
from tests.support.rollouts import Played, play
from tests.support.waiting import until

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="Done.")
SLEEP = bash("echo started; sleep 60", timeout=120_000)


def assert_unscored(played: Played, kind: str, *words: str) -> None:
    trace = played.trace
    assert not trace.ok
    assert not played.scored
    assert trace.last_error is not None
    assert trace.last_error.type == kind, played.error
    assert all(word in trace.last_error.message for word in words), played.error
    assert trace.metrics["agent_error"] == 1.0


@pytest.mark.parametrize(
    ("script", "harness", "kind", "words"),
    [
        pytest.param(
            [bash("echo 1"), Reply(faults=fault("status", status=401))],
            {},
            "ProviderError",
            ["upstream 401", "a fault of its script"],
            id="401",
        ),
        pytest.param(
            [Reply(faults=fault("hang"))],
            {"provider_timeout": 2.0},
            "ProviderError",
            ["gave up waiting for the model (provider_timeout)", "timed out"],
            id="no answer",
        ),
        pytest.param(
            [DONE],
            {"opencode_config": {"model": 7}},
            "HarnessError",
            ["without a single model call (exit 1)", "Configuration is invalid"],
            id="broken configuration",
        ),
        pytest.param(
            [DONE],
            {"opencode_config": {"plugin": ["file:///nowhere.js"]}},
            "HarnessError",
            ["did not load the opencode-env plugin"],
            id="plugin missing",
        ),
    ],
)
async def test_what_the_infrastructure_did_is_an_error_and_never_a_score(
    confined: Place, script: Sequence[Reply], harness: dict[str, Any], kind: str, words: Sequence[str]
) -> None:
    assert_unscored(await play(confined, script, harness=harness), kind, *words)


async def test_a_stream_that_never_names_a_finish_reason_is_ended_within_seconds(confined: Place) -> None:
    def unfinished(request: ChatRequest) -> Reply:
        return Reply(text="And so on.", faults=fault("no_finish"))

    played = await play(confined, unfinished)
    assert_unscored(played, "ProviderError", "keeps calling the model without end")
    assert_no_longer(played.seconds, 30)


async def test_an_exit_with_code_0_before_any_model_call_is_an_error(fake_program: Path) -> None:
    """Played by a shell script: the real binary has no such exit that could be provoked."""
    program = fake_program / "opencode"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.18.33 || echo "gave up quietly" >&2\n')
    program.chmod(0o755)
    place = Confined(binds=(Bind(fake_program, "/opencode"),))
    played = await play(place, DONE, harness={"install": "image"})
    assert_unscored(played, "HarnessError", "without a single model call (exit 0)", "gave up quietly")
    assert played.requests == []


async def test_a_confined_sandbox_that_dies_in_mid_run_is_a_sandbox_error(confined: Place) -> None:
    async def kill(box: Runtime, model: ScriptedModel) -> None:
        await until(partial(runs, box, "sleep 60"))
        backend_of(box).cleanup()

    played = await play(confined, [SLEEP, DONE], during=kill)
    assert_unscored(played, "SandboxError")


@pytest.mark.podman
@pytest.mark.parametrize("command", [["rm", "--force"], ["kill"]], ids=" ".join)
async def test_a_container_that_is_ended_in_mid_run_is_a_typed_error(container: Place, command: list[str]) -> None:
    async def remove(box: Runtime, model: ScriptedModel) -> None:
        await until(partial(runs, box, "sleep 60"))
        name = box.info.id or ""
        await asyncio.to_thread(subprocess.run, ["podman", *command, name], check=True, capture_output=True)

    played = await play(container, [SLEEP, DONE], during=remove)
    assert_unscored(played, "SandboxError")


SAID = Reply(text="It will be done.")
ENDLESS = {
    "500": (fault("status", status=500), "ProviderError", "upstream 500"),
    "cut": (fault("cut"), "ProviderError", "peer closed connection"),
    "html": (fault("html"), "ProviderError", "stream ended before its terminal event"),
    "malformed events": (fault("malformed_sse"), "ProviderError", ""),
    # verifiers takes a stream with an error event for a whole turn, so only OpenCode's own report of it is left.
    # By then the agent's own programs could have written that report: it is scored, and no case of these.
}


@pytest.fixture(scope="module", autouse=True)
def endless() -> Iterator[Future[dict[str, Played]]]:
    """One rollout for each way in which every call can fail, side by side and beside the other tests of this file:
    OpenCode's own retries take 70 s, nearly all of it waiting."""

    async def all_of_them() -> dict[str, Played]:
        scripts = [[bash("echo 1"), SAID.model_copy(update={"faults": faults})] for faults, _, _ in ENDLESS.values()]
        played = await asyncio.gather(*(play(Confined(), script) for script in scripts))
        return dict(zip(ENDLESS, played, strict=True))

    with ThreadPoolExecutor(1) as background:
        yield background.submit(asyncio.run, all_of_them())


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDLESS)
def test_an_endpoint_that_never_recovers_is_an_error_once_opencode_gives_up(
    endless: Future[dict[str, Played]], name: str
) -> None:
    _, kind, words = ENDLESS[name]
    assert_unscored(endless.result()[name], kind, words)
    assert len(endless.result()[name].requests) == 1 + 6
