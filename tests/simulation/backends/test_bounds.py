"""What one server may do to the process that all rollouts share: long answers, other prints, an end between calls."""

import logging
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import verifiers.v1 as vf
from opencode_env.tool_backends import connection
from opencode_env.tool_backends.connection import MAX_ANSWER_BYTES, TOO_LONG, BackendConnection

from tests.simulation.backends import surroundings
from tests.simulation.backends.surroundings import TOKEN, InstanceApi, notes_at, program, said
from tests.simulation.backends.test_servers import remote, started
from tests.support.user_home import closed_port
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("sandboxes")

RUDE = Path(__file__).with_name("rude_server.py")


def rude(directory: Path, *options: str) -> AbstractAsyncContextManager[BackendConnection]:
    """The rude server as a program."""
    return started(directory, program("rude", command=[sys.executable, str(RUDE), *options]))


@pytest.mark.parametrize("options", [(), ("--ids-last",)])
async def test_an_answer_that_is_too_long_is_an_error_of_its_call_alone(tmp_path: Path, options: tuple[str]) -> None:
    async with rude(tmp_path, *options) as server:
        assert len(said(await server.call("long", {"size": MAX_ANSWER_BYTES - 1000}))) == MAX_ANSWER_BYTES - 1000
        for size in (MAX_ANSWER_BYTES, 10 * MAX_ANSWER_BYTES):
            result = await server.call("long", {"size": size})
            assert (result.is_error, said(result)) == (True, TOO_LONG)
        assert said(await server.call("long", {})) == "x"
        assert not server.suspect


async def test_what_a_program_prints_beside_its_messages_is_passed_over_up_to_a_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rude(tmp_path) as server:
        for _ in range(3):
            assert said(await server.call("chatter", {"lines": 5000})) == "x"
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        with pytest.raises(vf.ToolsetError, match="'rude'"):
            await server.call("chatter", {"lines": 20_000})
    assert "bytes that are not MCP" in caplog.text


async def test_a_program_that_ends_between_calls_is_missed_by_the_next_rollout_and_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_TRUSTED_SECONDS", 0.0)
    async with rude(tmp_path) as server:
        assert said(await server.call("leave", {})) == "x"

        async def gone() -> bool:
            return not await server.works()

        await until(gone)  # it answers first, then ends
        with pytest.raises(vf.ToolsetError, match="'rude'"):
            await server.call("long", {})


async def test_a_long_answer_over_http_is_an_error_of_its_call_alone(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * MAX_ANSWER_BYTES)
    port = closed_port()
    async with notes_at(port), started(tmp_path, remote(port, TOKEN)) as notes:
        assert (await notes.call("read_data", {"name": str(tmp_path / "long")})).is_error
        assert said(await notes.call("add_note", {"text": "on"})) == "1 notes: on"


async def test_a_long_answer_of_an_api_is_an_error_of_its_call_alone(tmp_path: Path) -> None:
    async with (
        InstanceApi(proxied=True) as api,
        started(tmp_path, surroundings.instance(), global_remote_apis={"here": api.config}) as notes,
    ):
        result = await notes.call("add_note", {"text": "x" * MAX_ANSWER_BYTES})
        assert (result.is_error, said(result)) == (True, TOO_LONG)
        assert not (await notes.call("add_note", {"text": "on"})).is_error
