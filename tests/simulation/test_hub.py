"""The environment's end of the control plane, and servers that say what they should not."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opencode_simulation import hub as hub_module
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import BrokenWorldError, WorldError
from opencode_simulation.hub import Hub, ServerHello, WorldReport, line

from tests.simulation import ledgers
from tests.support.programs import running
from tests.support.waiting import until


@asynccontextmanager
async def served(hub: Hub, rollout: str) -> AsyncIterator[asyncio.StreamWriter]:
    """A server of an open rollout's own, with the right token."""
    await hub.open(rollout, EpisodeSpec(), ledgers.empty(), lambda _: None)
    reader, writer = await asyncio.open_unix_connection(hub.path)
    try:
        writer.write(line(ServerHello(token=hub.token, rollout=rollout)))
        await reader.readline()
        yield writer
    finally:
        writer.close()
        await hub.forget(rollout)


async def test_a_server_is_heard_of_its_own_rollout_only() -> None:
    hub = Hub()
    async with served(hub, "mine") as writer, served(hub, "theirs"):
        writer.write(line(WorldReport(kind="opened", rollout="theirs", observation="forged")))
        writer.write(line(WorldReport(kind="opened", rollout="mine", observation="real")))
        await until(lambda: hub._rollouts["mine"].opened.is_set())
        assert hub._rollouts["theirs"].ledger.summary.first_observation is None
        assert not hub.over("theirs")


@pytest.mark.parametrize("said", [b"no message\n", b"x" * 5_000])
@pytest.mark.parametrize("opened", [False, True])
async def test_what_cannot_be_read_fails_the_rollouts_of_its_server(
    said: bytes, opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "LINE_LIMIT", 1_000)
    hub = Hub()
    async with served(hub, "one") as writer:
        if opened:
            writer.write(line(WorldReport(kind="opened", rollout="one", observation="so")))
        writer.write(said)
        await until(lambda: hub.over("one"))
        with pytest.raises(WorldError, match="said what cannot be read") as failed:
            await hub.finish("one")
    assert failed.type is (BrokenWorldError if opened else WorldError)


SERVES = "import time; from opencode_simulation.hub import hub; print(hub().path, flush=True); time.sleep(600)"


@pytest.mark.usefixtures("programs")
async def test_a_killed_process_leaves_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "serves.py"
    program.write_text(SERVES)
    with tempfile.TemporaryDirectory() as temporary:  # short enough for a socket, as tmp_path may not be
        monkeypatch.setenv("TMPDIR", temporary)
        with running(str(program)) as (killed, said):
            assert Path((await asyncio.to_thread(said.readline)).strip()).parent.is_relative_to(temporary)
            killed.kill()
            await until(lambda: not os.listdir(temporary))


async def test_a_shared_server_that_died_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "_RECONNECT_SECONDS", 0.1)
    hub = Hub()
    for name in ("first", "second"):
        await hub.open(name, EpisodeSpec(), ledgers.empty(), print)
    reader, writer = await asyncio.open_unix_connection(hub.path)
    writer.write(line(ServerHello(token=hub.token, group="g")))
    first = asyncio.create_task(hub.open_shared("first", "g"))
    assert b"first" in await reader.readline()
    writer.close()
    with pytest.raises(WorldError, match="the world's server died"):
        await first
    with pytest.raises(WorldError, match="the one before has died, perhaps of what an agent asked"):
        await hub.open_shared("second", "g")
    for name in ("first", "second"):
        await hub.forget(name)
