"""The shell commands, as programs: serve, play, snapshot, parity."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

from mcp.client.client import Client
from opencode_env.simulation.ledger import LedgerEntry

from tests.simulation.served import text

COMMAND = [sys.executable, "-m", "opencode_env.simulation"]


def run(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run([*COMMAND, *arguments], input=lines, capture_output=True, text=True, check=False, timeout=120)


async def test_a_served_world_lists_its_tools_and_resources_and_keeps_its_ledger(tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    words = ["serve", "issue-tracker", "--seed", "4", "--config", '{"work": "report"}', "--ledger", str(steps)]
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(*COMMAND, *words, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
    assert server.stdout is not None
    try:
        said = (await server.stdout.readline()).decode()
        async with Client(said.split()[-1]) as client:
            assert len((await client.list_tools()).tools) == 10
            assert [str(found.uri) for found in (await client.list_resources()).resources] == ["tracker://labels"]
            assert "people" in text(await client.call_tool("list_people", {}))
            assert (await client.call_tool("get_issue", {"number": 999})).is_error
            await client.call_tool("finish", {})
    finally:
        server.send_signal(signal.SIGTERM)
        code = await server.wait()
    assert code == 0
    entries = [LedgerEntry.model_validate_json(line) for line in steps.read_text().splitlines()]
    assert [(entry.tool, entry.terminated) for entry in entries] == [("list_people", False), ("finish", True)]


def test_a_person_plays_a_world_and_sees_what_it_pays() -> None:
    lake = json.dumps({"slippery": False, "map": ["SF", "HG"]})
    done = run("play", "frozen-lake", "--config", lake, lines="jump\nmove sideways\nmove right\nmove down\n")
    assert done.returncode == 0, done.stderr
    assert "there is no tool 'jump'" in done.stdout
    assert "Input should be 'left', 'down', 'right' or 'up'" in done.stdout
    assert "| reward 1 · the end" in done.stdout
    assert done.stdout.endswith("return 1 after 2 steps\n")


def test_a_snapshot_is_what_it_was_taken_of_and_another_world_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "tracker.json")
    assert run("snapshot", "issue-tracker", path).stdout == f"10 tools written to {path}\n"
    assert run("parity", "issue-tracker", path, "--descriptions").returncode == 0
    other = run("parity", "frozen-lake", path)
    assert (other.returncode, 'tool "move": not in production' in other.stderr) == (1, True)


def test_wrong_use_says_what_to_write() -> None:
    for words, message in (
        (["play", "nowhere"], "shipped are frozen-lake, issue-tracker"),
        (["play", "frozen-lake", "--config", "{"], "Expecting"),
        (["parity", "frozen-lake", "nowhere"], "write a URL"),
    ):
        done = run(*words)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
