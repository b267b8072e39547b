"""The way of one rollout to its backends: what never reaches a server, and whose fault a dead one is."""

import asyncio
import math
from pathlib import Path

import pytest
from opencode_env.errors import BrokenBackendError
from opencode_env.tool_backends.connection import BackendConnection
from opencode_env.tool_backends.options import BackendsConfig
from opencode_env.tool_backends.serving import Bridge, RolloutTools, ToolBackends
from verifiers.v1.errors import ToolsetError

from tests.simulation.backends.surroundings import program, programs_here, said, write_file
from tests.simulation.backends.test_servers import started
from tests.support.machine import patience
from tests.support.served_app import no_delay
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("sandboxes")


async def tools_of(instance: BackendConnection) -> RolloutTools:
    """A rollout that uses a running instance."""

    async def start() -> BackendConnection:
        return instance

    tools = RolloutTools({"notes": start}, Bridge(), "http://127.0.0.1:1")
    await tools.start()
    return tools


async def test_a_shared_server_that_dies_is_the_error_of_those_who_asked_it_and_can_be_tried_again_by_others(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, program()) as notes:
        culprit, user, bystander = [await tools_of(notes) for _ in range(3)]
        assert said(await user._channels["notes"].call("add_note", {"text": "one"})) == "1 notes: one"
        for tools, tool in ((culprit, "die"), (user, "add_note"), (bystander, "add_note")):
            assert (await tools._channels["notes"].call(tool, {"text": "late"})).is_error
    failures = [type(tools.failure) for tools in (culprit, user, bystander)]
    assert failures == [BrokenBackendError, BrokenBackendError, ToolsetError]


@pytest.mark.parametrize("text", [math.nan, "\ud800", [math.inf]])
async def test_what_is_not_json_reaches_no_server(tmp_path: Path, text: object) -> None:
    async with started(tmp_path, program()) as notes:
        tools = await tools_of(notes)
        assert said(await tools._channels["notes"].call("add_note", {"text": text})) == "The arguments are not JSON."
        assert said(await tools._channels["notes"].call("add_note", {"text": "one"})) == "1 notes: one"
    assert tools.failure is None


async def test_a_shared_server_that_died_is_made_anew_for_the_next_rollout(tmp_path: Path) -> None:
    file = write_file(tmp_path / "backends.yaml", program(instance_scoping="shared_global"))
    backends = ToolBackends(BackendsConfig(file=file))
    await backends.start()
    try:
        (shared,) = backends._shared
        first = await shared.instance()
        assert said(await first.call("add_note", {"text": "one"})) == "1 notes: one"
        assert await shared.instance() is first
        with pytest.raises(ToolsetError):
            await first.call("die", {})
        second = await shared.instance()
        assert second is not first
        assert said(await second.call("add_note", {"text": "two"})) == "1 notes: two"
    finally:
        await backends.stop()


async def test_a_shared_server_that_does_not_start_takes_the_others_with_it(tmp_path: Path) -> None:
    silent = program("silent", command=["sh", "-c", "echo no licence >&2; exec sleep 2"])
    shared = [dict(backend, instance_scoping="shared_global") for backend in (program(), silent)]
    backends = ToolBackends(BackendsConfig(file=write_file(tmp_path / "backends.yaml", *shared)))
    try:
        with pytest.raises(ToolsetError, match=r"'silent' did not start: .* it said: no licence"):
            await backends.start()
    finally:
        await backends.stop()
    await until(lambda: programs_here() == [])


async def test_a_shared_server_that_one_rollout_hangs_is_an_error_of_no_rollout_that_it_answers(tmp_path: Path) -> None:
    async with started(tmp_path, program(), call_timeout=patience(2.0)) as notes:
        culprit, neighbour = [await tools_of(notes) for _ in range(2)]
        hanging = [asyncio.create_task(culprit._channels["notes"].call("hang", {})) for _ in range(20)]
        await until(lambda: culprit.record["notes"]["calls"] == 16)
        for number in range(1, 4):
            answer = await neighbour._channels["notes"].call("add_note", {"text": "on"})
            assert said(answer).startswith(f"{number} notes")
        assert all(result.is_error for result in await asyncio.gather(*hanging))
    assert isinstance(culprit.failure, BrokenBackendError)
    assert neighbour.failure is None


async def test_calls_do_not_pile_up_at_a_server_that_hangs(tmp_path: Path) -> None:
    async with started(tmp_path, program()) as notes:
        way = (await tools_of(notes))._channels["notes"]
        calls = [asyncio.create_task(way.call("hang", {})) for _ in range(64)]
        await until(lambda: way._waiting == 64)
        assert "64 calls are waiting already" in said(await way.call("add_note", {"text": "one"}))
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert way._waiting == 0


async def test_an_answer_of_the_bridge_waits_for_no_acknowledgement() -> None:
    bridge = Bridge()
    await bridge.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", bridge._port)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await reader.readline()
        options = no_delay(bridge._port)
        writer.close()
    finally:
        await bridge.stop()
    assert options == [1, 1]  # of the socket that listens, and of the one that answers
