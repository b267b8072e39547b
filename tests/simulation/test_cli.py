"""The shell commands, as programs: serve, play, snapshot, parity."""

import asyncio
import io
import json
import signal
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from opencode_simulation.__main__ import main
from opencode_simulation.alone import WorldAlone, serve_alone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.ledger import LedgerEntry
from opencode_simulation.reference import find_world

from tests.simulation.served import text
from tests.support.programs import running
from tests.support.served_app import no_delay


@pytest.mark.usefixtures("programs")
async def test_a_served_world_lists_its_tools_and_resources_and_keeps_its_ledger(tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    words = ["serve", "issue-tracker", "--seed", "4", "--config", '{"work": "report"}', "--ledger", str(steps)]
    with running("-m", "opencode_simulation", *words) as (server, said):
        async with Client((await asyncio.to_thread(said.readline)).split()[-1]) as client:
            assert len((await client.list_tools()).tools) == 10
            assert [str(found.uri) for found in (await client.list_resources()).resources] == ["tracker://labels"]
            assert "people" in text(await client.call_tool("list_people", {}))
            assert (await client.call_tool("get_issue", {"number": 999})).is_error
            await client.call_tool("finish", {})
        server.terminate()
        assert await server.ended() == 0
    entries = [LedgerEntry.model_validate_json(line) for line in steps.read_text().splitlines()]
    assert [(entry.tool, entry.terminated) for entry in entries] == [("list_people", False), ("finish", True)]


async def test_a_signal_that_comes_before_the_first_request_ends_a_served_world_whose_answers_do_not_wait() -> None:
    options: list[int] = []

    def ready(port: int) -> None:
        options.extend(no_delay(port))
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    try:
        async with WorldAlone(find_world("issue-tracker"), EpisodeSpec(seed=4)) as world:
            await serve_alone(world, "127.0.0.1", 0, ready)
            await world.episode.finish()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert options == [1]


def run(*arguments: str) -> int:
    """One command to its end, in this process, which has imported what takes a new one seconds; its exit code."""
    try:
        main(arguments)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(ended.code)
            return 1
        return ended.code or 0
    return 0


def test_a_person_plays_a_world_and_sees_what_it_pays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("jump\nmove sideways\nmove right\nmove down\n"))
    assert run("play", "frozen-lake", "--config", json.dumps({"slippery": False, "map": ["SF", "HG"]})) == 0
    shown = capsys.readouterr().out
    assert "there is no tool 'jump'" in shown
    assert "Input should be 'left', 'down', 'right' or 'up'" in shown
    assert "| reward 1 · the end" in shown
    assert shown.endswith("return 1 after 2 steps\n")


def test_a_snapshot_is_what_it_was_taken_of_and_another_world_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "tracker.json")
    assert run("snapshot", "issue-tracker", path) == 0
    assert capsys.readouterr().out == f"10 tools written to {path}\n"
    assert run("parity", "issue-tracker", path, "--descriptions") == 0
    assert run("parity", "frozen-lake", path) == 1
    assert 'tool "move": not in production' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["play", "nowhere"], "shipped are frozen-lake, issue-tracker"),
        (["play", "frozen-lake", "--config", "{"], "Expecting"),
        (["parity", "frozen-lake", "nowhere"], "write a URL"),
    ],
)
def test_wrong_use_says_what_to_write(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err
