"""Connections of one rollout cost the others nothing: few of them, none for ever, and descriptors enough."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.interception import server
from rollout_sandbox.confined import ConfinedRuntime, LocalSandboxConfig, provision_confined

from tests.rlm.role_server import role_server
from tests.support.programs import finished, own_variables

RAISED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from opencode_env.cli_agent.interception_servers import raise_open_files
raise_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""

HOLD = """
import socket, sys, time
port, count = int(sys.argv[1]), int(sys.argv[2])
kept = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
for one in kept[: count // 2]:
    one.sendall(b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\n")
print("held", flush=True)
ended = 0
for one in kept:
    try:
        while one.recv(4096): pass
    except OSError: pass
    ended += 1
print("ended", ended)
"""


@pytest.mark.usefixtures("programs")
def test_the_soft_limit_of_open_files_becomes_the_hard_one(tmp_path: Path) -> None:
    (tmp_path / "raised.py").write_text(RAISED)
    done = finished([sys.executable, "raised.py"], tmp_path, own_variables())
    soft, hard = done.stdout.split()
    assert soft == hard != "256"


async def test_a_connection_that_carries_nothing_ends_and_one_that_waits_for_its_answer_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "BODY_IDLE_SECONDS", 0.3)
    async with role_server() as serving, serving.rollout() as rollout:
        host, port = rollout.url.removeprefix("http://").split(":")
        silent = await asyncio.open_connection(host, int(port))
        begun = await asyncio.open_connection(host, int(port))
        begun[1].write(b"POST /v1/chat/completions HTTP/1.1\r\n")
        call = asyncio.create_task(rollout.ask(json.dumps({"held": True})))
        await serving.model.wait_for_requests(1)
        for reader, writer in (silent, begun):
            assert await reader.read() == b""
            writer.close()
        assert not call.done()
        serving.model.released.set()
        assert (await call).status == 200


@pytest.mark.usefixtures("sandboxes")
async def test_from_the_sandbox_held_connections_end_and_the_neighbours_calls_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "BODY_IDLE_SECONDS", 1)
    monkeypatch.setattr("rollout_sandbox.confined.network.MAX_CONNECTIONS", 20)
    monkeypatch.setattr("rollout_sandbox.confined.network.IDLE_SECONDS", 1)
    async with (
        role_server() as serving,
        serving.rollout() as honest,
        provision_confined(LocalSandboxConfig(), name="attacker") as box,
    ):
        assert isinstance(box, ConfinedRuntime)
        port = box.host_url(honest.url).rsplit(":", 1)[1]
        attack = asyncio.create_task(box.run(["python3", "-c", HOLD, port, "200"], {}))
        assert [(await honest.ask(f"beside {number}")).status for number in range(10)] == [200] * 10
        result = await attack
        assert "ended 200" in result.stdout, result


@asynccontextmanager
async def reached(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], program: str
) -> AsyncIterator["asyncio.Task[vf.ProgramResult]"]:
    """A program of a sandbox that has a connection `s` to a server of this machine."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, provision_confined(LocalSandboxConfig()) as box:
        assert isinstance(box, ConfinedRuntime)
        port = server.sockets[0].getsockname()[1]
        box.host_url(f"http://127.0.0.1:{port}")
        code = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); {program}"
        yield asyncio.create_task(box.run(["python3", "-c", code], {}))


@pytest.mark.usefixtures("sandboxes")
async def test_an_idle_connection_of_the_sandbox_is_closed_by_the_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_sandbox.confined.network.IDLE_SECONDS", 0.2)

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        writer.close()

    async with reached(never, "print(s.recv(9), s.recv(9))") as running:
        assert (await running).stdout == "b'hello' b''\n"


@pytest.mark.usefixtures("sandboxes")
async def test_a_connection_that_waits_for_an_answer_stays_however_long_that_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rollout_sandbox.confined.network.IDLE_SECONDS", 0.1)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        asked.set()
        await answer.wait()
        writer.write(b"late")
        await writer.drain()
        writer.close()

    async with reached(late, "s.send(b'ask'); print(s.recv(9))") as waiting:
        await asked.wait()
        await asyncio.sleep(1)  # many times its timeout: what is under test is that nothing happens
        answer.set()
        assert (await waiting).stdout == "b'late'\n"
