"""A failure of the infrastructure is the typed error of its boundary, with the log's tail, and never a score."""

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from rollout_sandbox.compat import backend_of
from rollout_sandbox.conformance.subject import runs
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import Runtime

from tests.support.machine import assert_no_longer
from tests.support.places import Confined, Place, with_program
from tests.support.replies import bash, fault, faulty
from tests.support.rollouts import Played, play
from tests.support.waiting import until

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

DONE = Reply(text="Done.")
SLEEP = bash("echo started; sleep 60", timeout=120_000)


def assert_unscored(played: Played, kind: str, *words: str) -> None:
    assert (played.trace.ok, played.scored, played.trace.metrics["agent_error"]) == (False, False, 1.0)
    found, _, message = played.error.partition(": ")
    assert (found, [word for word in words if word not in message]) == (kind, []), played.error


@pytest.mark.parametrize(
    ("reply", "harness", "words"),
    [
        (
            faulty("hang"),
            {"provider_timeout": 2.0},
            ["ProviderError", "gave up waiting for the model (provider_timeout)", "timed out"],
        ),
        (
            DONE,
            {"opencode_config": {"model": 7}},
            ["HarnessError", "without a single model call (exit 1)", "Configuration is invalid"],
        ),
    ],
    ids=["no answer", "broken configuration"],
)
async def test_what_the_infrastructure_did_is_an_error_and_never_a_score(
    confined: Place, reply: Reply, harness: dict[str, Any], words: Sequence[str]
) -> None:
    assert_unscored(await play(confined, reply, harness=harness), *words)


async def test_a_stream_that_never_names_a_finish_reason_is_ended_within_seconds(confined: Place) -> None:
    played = await play(confined, lambda _: Reply(text="And so on.", faults=fault("no_finish")))
    assert_unscored(played, "ProviderError", "keeps calling the model without end")
    assert_no_longer(played.seconds, 30)


async def test_an_endpoint_that_answers_with_a_page_is_asked_once_and_quoted(confined: Place) -> None:
    async with role_interception(InterceptionServerConfig()) as server:
        played = await play(confined, faulty("html", body="<p>502 Bad Gateway</p>"), interception=server)
    assert_unscored(played, "ProviderError", "text/html", "502 Bad Gateway")
    assert len(played.requests) == 1


async def test_opencode_waits_as_long_as_the_endpoint_wants_and_finishes(confined: Place) -> None:
    seconds = 5.0  # OpenCode's own rest before its second send is of 2.5 s at most
    limited = Reply(text="Done.", faults=fault("status", status=429, retry_after=seconds, attempts=1))
    async with role_interception(InterceptionServerConfig()) as server:
        played = await play(confined, limited, interception=server)
    assert (played.trace.ok, played.trace.last_reply) == (True, "Done.")
    first, second = played.requests
    assert second.received - first.received >= seconds


async def test_an_exit_with_code_0_before_any_model_call_is_an_error(fake_program: Path) -> None:
    """Played by a shell script: the real binary has no such exit that could be provoked."""
    program = '#!/bin/sh\n[ "$1" = --version ] && echo 1.18.33 || echo "gave up quietly" >&2\n'
    played = await play(with_program(fake_program, program), DONE, harness={"install": "image"})
    assert_unscored(played, "HarnessError", "without a single model call (exit 0)", "gave up quietly")
    assert played.requests == []


@pytest.mark.usefixtures("light")
async def test_a_confined_sandbox_that_dies_in_mid_run_is_a_sandbox_error(confined: Place) -> None:
    async def kill(box: Runtime, model: ScriptedModel) -> None:
        await until(partial(runs, box, "sleep 60"))
        backend_of(box).cleanup()

    played = await play(confined, [SLEEP, DONE], during=kill)
    assert_unscored(played, "SandboxError")


@pytest.mark.podman
@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("command", [["rm", "--force"], ["kill"]], ids=" ".join)
async def test_a_container_that_is_ended_in_mid_run_is_a_typed_error(
    light_container: Place, command: list[str]
) -> None:
    async def remove(box: Runtime, model: ScriptedModel) -> None:
        await until(partial(runs, box, "sleep 60"))
        name = box.info.id or ""
        await asyncio.to_thread(subprocess.run, ["podman", *command, name], check=True, capture_output=True)

    played = await play(light_container, [SLEEP, DONE], during=remove)
    assert_unscored(played, "SandboxError")


ENDLESS = {
    "500": (fault("status", status=500), "upstream 500"),
    "cut": (fault("cut"), "peer closed connection"),
    "html": (fault("html"), "stream ended before its terminal event"),
    "malformed events": (fault("malformed_sse"), ""),
    # verifiers takes a stream with an error event for a whole turn, so only OpenCode's own report of it is left.
    # By then the agent's own programs could have written that report: it is scored, and no case of these.
}
FOR_GOOD = {"401": (fault("status", status=401), "upstream 401: a fault of its script"), **ENDLESS}
SAID = Reply(text="It will be done.")


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("name", FOR_GOOD)
async def test_each_way_in_which_a_call_fails_for_good_is_the_endpoints_error(confined: Place, name: str) -> None:
    faults, words = FOR_GOOD[name]
    played = await play(confined, [bash("echo 1"), SAID.model_copy(update={"faults": faults})])
    assert_unscored(played, "ProviderError", *words.split(": "))
    assert len(played.requests) == (1 + 1 if name == "401" else 1 + 7)


@pytest.fixture(scope="module", autouse=True)
def endless() -> Iterator[Future[Played]]:
    """One rollout in which each call fails in another way, beside the other tests of this file: OpenCode's own retries
    take 70 s, nearly all of it waiting."""
    ways, begun = cycle(faults for faults, _ in ENDLESS.values()), Event()

    def failing(request: ChatRequest) -> Reply:
        return bash("echo 1") if request.turn == 0 else SAID.model_copy(update={"faults": next(ways)})

    async def begins(box: Runtime, model: ScriptedModel) -> None:
        await model.wait_for_requests(1)
        begun.set()

    with ThreadPoolExecutor(1) as background:
        running = background.submit(asyncio.run, play(Confined(), failing, during=begins))
        running.add_done_callback(lambda _: begun.set())
        begun.wait()  # another test's light program is not taken for OpenCode then
        yield running


@pytest.mark.slow
def test_an_endpoint_that_never_recovers_is_an_error_once_opencode_gives_up(endless: Future[Played]) -> None:
    assert_unscored(endless.result(), "ProviderError", "peer closed connection")
    assert len(endless.result().requests) == 1 + 6
