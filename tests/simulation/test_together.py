"""A world beside the tools of a real server, with a user on the other side, and played by opencode-rlm."""

from collections.abc import Sequence
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.simulation.backends.surroundings import program, write_file
from tests.support.replies import call
from tests.support.rows import script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

NOTE = call("my_notes_add_note", text="seen")


def moves(*directions: str) -> Sequence[Reply]:
    """One call of the lake's tool for each."""
    return [call("frozen_lake_move", direction=direction) for direction in directions]


POLICY = ScriptPolicy(
    script("reaches", NOTE, *moves("right"), Reply(text="On?"), *moves("right", "down", "down"), Reply(text="never")),
    script("quits", *moves("right"), Reply(text="On?"), NOTE, Reply(text="No.")),
    script("alone", NOTE, *moves("right", "right", "down", "down"), Reply(text="never")),
)


async def played(home: UserHome, rows: Sequence[dict[str, Any]], *words: str) -> FinishedEvaluation:
    """These rows on a lake, with a program of notes beside it."""
    file = write_file(home.root / "backends.yaml", program("my notes"))
    lake = {"seed": 1, "config": {"slippery": False, "map": ["SFF", "FFF", "FFG"]}}
    asked = [{**lake, "prompt": f"row {row['id']}: {{observation}}", **row} for row in rows]
    dataset = write_rows(home.root / "rows.jsonl", asked)
    arguments = ["opencode-simulation", *words, "--env.taskset.dataset", str(dataset), "-c", "2"]
    arguments += ["--env.backends.file", str(file)]
    async with ScriptedModel(POLICY) as model:
        finished = await home.run(str(rows[0]["id"]), model.base_url, *arguments)
    assert finished.exit_code == 0, finished.log
    assert home.leftovers() == []
    return finished


async def test_an_agent_has_a_world_a_real_server_and_a_user_at_once(shared_home: UserHome) -> None:
    rows = [{"id": name, "user_simulation": {"script": ["Go on."]}} for name in ("reaches", "quits")]
    finished = await played(shared_home, rows, "--env.taskset.task.server", "shared")
    for name, reward, stop, reason, steps in (
        ("reaches", 1.0, "environment_done", "control_plane_signal", 4),
        ("quits", 0.0, "user_stop", "user_stop", 1),
    ):
        trace = finished.trace(name)
        assert trace.ok, trace.errors
        assert (trace.reward, trace.stop_condition) == (reward, stop)
        assert trace.info["termination_reason"] == reason
        assert trace.info["simulation"]["summary"]["steps"] == steps
        assert trace.info["tool_backends"]["my notes"]["calls"] == 1
        assert trace.info["user_simulation"] == {"played_by": "script", "turns": 1}


async def test_opencode_rlm_plays_a_world_beside_a_real_server(shared_home: UserHome) -> None:
    trace = (await played(shared_home, [{"id": "alone"}], "--env.id", "opencode-rlm")).trace("alone")
    assert trace.ok, trace.errors
    assert (trace.reward, trace.stop_condition) == (1.0, "environment_done")
    assert trace.info["tool_backends"]["my notes"]["calls"] == 1
