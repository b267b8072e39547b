"""The server among its callers: gone, too many, without a token, hostile; and its own end. Nothing is left of any."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_openenv import OpenCodeEnvClient, RolloutResult
from websockets.asyncio.client import ClientConnection, connect

from tests.support.held_model import HeldModel
from tests.support.openenv_server import RunningServer, openenv_server
from tests.support.replies import faulty
from tests.support.sizes import size
from tests.support.user_home import UserHome
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

DONE = ScriptPolicy.of(Reply(text="done"))
SILENT = ScriptPolicy.of(faulty("hang"))


def step(model: ScriptedModel, **arguments: Any) -> str:
    """A message that calls the tool."""
    call = {"base_url": model.base_url, "model": "m", "instruction": "do it", **arguments}
    return json.dumps({"type": "step", "data": {"type": "call_tool", "tool_name": "run_rollout", "arguments": call}})


def websocket(server: RunningServer) -> connect:
    """A connection to a server."""
    return connect(server.url.replace("http", "ws") + "/ws", proxy=None)


async def answer_of(connection: ClientConnection) -> RolloutResult:
    """The next answer of a connection."""
    data = json.loads(await connection.recv())["data"]
    return RolloutResult.model_validate_json(data["observation"]["result"]["content"][0]["text"])


@asynccontextmanager
async def running(home: UserHome, *arguments: str, env: dict[str, str] | None = None) -> AsyncIterator[RunningServer]:
    """A server, started beside this event loop."""
    context = openenv_server(home, *arguments, env=env)
    server = await asyncio.to_thread(context.__enter__)
    try:
        yield server
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def test_a_caller_that_goes_away_leaves_nothing_and_the_server_ends_cleanly(home: UserHome) -> None:
    async with ScriptedModel(SILENT) as silent, ScriptedModel(DONE) as model, running(home) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        body = json.dumps({"action": json.loads(step(silent))["data"]}).encode()
        writer.write(b"POST /step HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        async with websocket(server) as gone, websocket(server) as polite:
            await gone.send(step(silent, task_id="gone"))
            await polite.send(step(silent, task_id="polite"))
            await until(lambda: silent.active == 3)
            assert len(home.sandboxes()) == 3
            writer.transport.abort()
            gone.transport.abort()
            await polite.close()
            await until(lambda: not home.sandboxes())
            await until(lambda: server.log.count(": its caller is gone") == 3)
        assert all(f"run_rollout '{name}': ended after" in server.log for name in ("gone", "polite"))
        assert "Traceback" not in server.log
        # Who stays is served on, on the same places.
        async with websocket(server) as stays:
            await stays.send(step(model, verify=["true"]))
            assert (await answer_of(stays)).reward == 1.0
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.ended() == 0, server.log
        await until(lambda: not home.processes())
        assert home.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_server_that_is_told_to_end_answers_all_callers_first(home: UserHome, number: signal.Signals) -> None:
    async with ScriptedModel(SILENT) as silent, running(home, "--max-concurrent", "2") as server:
        async with websocket(server) as one, websocket(server) as other, websocket(server) as queued:
            await one.send(step(silent))
            await other.send(step(silent))
            await until(lambda: silent.active == 2)
            await queued.send(step(silent))
            server.process.send_signal(number)
            for connection in (one, other, queued):
                result = await answer_of(connection)
                assert (result.error, result.reward) == ("the server is shutting down", None)
                assert result.stop_condition == "refused"
        assert await server.process.ended() == 0, server.log
        await until(lambda: not home.processes())
        assert home.leftovers() == []


async def test_a_server_that_is_killed_leaves_no_process_and_its_callers_hear_of_it(home: UserHome) -> None:
    async with ScriptedModel(SILENT) as silent, running(home) as server:
        async with OpenCodeEnvClient(server.url) as env:
            call = asyncio.ensure_future(env.run_rollout(base_url=silent.base_url, model="m", instruction="do it"))
            await until(lambda: silent.active == 1)
            server.process.kill()
            with pytest.raises(Exception, match=r"close|connect"):
                await call
        await until(lambda: not home.processes())


async def test_of_many_callers_on_few_places_each_is_served_or_refused(home: UserHome) -> None:
    places, queued, callers = size((2, 4, 20), (4, 8, 40))
    served = places + queued
    options = ["--max-concurrent", str(places), "--max-queued", str(queued)]
    async with HeldModel(DONE) as model, running(home, *options) as server:

        async def ask(number: int) -> RolloutResult:
            async with websocket(server) as connection:
                await connection.send(step(model, verify=["true"], task_id=str(number)))
                return await answer_of(connection)

        asking = [asyncio.ensure_future(ask(number)) for number in range(callers)]
        await until(lambda: sum(one.done() for one in asking) == callers - served and model.active == places)
        assert len(home.sandboxes()) == places
        model.released.set()
        results = await asyncio.gather(*asking)
        refused = [result for result in results if result.stop_condition == "refused"]
        assert len(refused) == callers - served
        assert {result.reward for result in refused} == {None}
        told = f"the server is full: {places} rollouts run and {queued} callers wait"
        assert all(told in str(one.error) for one in refused)
        assert [result.reward for result in results if result not in refused] == [1.0] * served
        assert sorted(result.task_id for result in results) == sorted(map(str, range(callers)))
        assert home.sandboxes() == []


async def test_only_who_has_the_token_is_served_and_no_page_of_a_browser(home: UserHome) -> None:
    def get(url: str, **headers: str) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    token = {"OPENCODE_OPENENV_TOKEN": "a-long-token"}
    async with ScriptedModel(DONE) as model, running(home, env=token) as server:
        for wrong in (None, "another-token"):
            with pytest.raises(ConnectionError):
                async with OpenCodeEnvClient(server.url, token=wrong) as env:
                    await env.reset()
        async with OpenCodeEnvClient(server.url, token="a-long-token") as env:
            result = await env.run_rollout(base_url=model.base_url, model="m", instruction="do it", verify=["true"])
            assert result.reward == 1.0
        right = {"Authorization": "Bearer a-long-token"}
        asked = {
            "no token": {},
            "a wrong token": {"Authorization": "Bearer another-token"},
            "half a header": {"Authorization": "Basic ????"},
            "a page": {**right, "Origin": "https://a-page.example"},
            "the token": right,
        }
        found = {name: await asyncio.to_thread(get, server.url + "/state", **head) for name, head in asked.items()}
        assert found == {"no token": 401, "a wrong token": 401, "half a header": 401, "a page": 403, "the token": 200}
        assert await asyncio.to_thread(get, server.url + "/health") == 200
        assert "a-long-token" not in server.log


def test_a_server_whose_agents_could_reach_it_asks_for_a_token(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="OPENCODE_OPENENV_TOKEN"),
        openenv_server(UserHome(tmp_path), "--sandbox.network", "host"),
    ):
        pass
