"""Kept turns of `opencode-rlm`: the sub-LLM calls before the turn stand on the sub trace of a rollout that goes on."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from opencode_runs.turns.kept import TurnRow, kept_turns

from tests.rlm.episodes import PolicyByRole, ServedRows, serving, task
from tests.support.replies import bash, call
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.sizes import WHOLE
from tests.turns.playing import same_ids

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

STEPS = [
    task("Look around."),
    call("llm_subcall", prompt="What is it?", files=[]),
    bash("llm 'and this?' >answer; cat answer"),
    Reply(text="done"),
]
ROW = {"id": "one", "question": "Go.", "answer": "done"}


def sub(request: ChatRequest) -> Reply:
    """A sub model that repeats the end of its prompt."""
    return Reply(text=f"echo: {request.user_texts[-1][-60:]}")


@asynccontextmanager
async def environment(place: Path, row: dict[str, Any], **turns: Any) -> AsyncIterator[ServedRows]:
    """The environment over one row."""
    place.mkdir()
    async with (
        ScriptedModel(same_ids(PolicyByRole(STEPS, sub))) as model,
        serving(model, place, [row], {"turns": turns}) as served,
    ):
        yield served


async def test_a_branch_asks_what_its_trunk_asked_and_holds_its_sub_calls(tmp_path: Path) -> None:
    async with environment(tmp_path / "trunk", ROW, keep=str(tmp_path / "kept")) as served:
        trunk = await served.play(served.slots()[0])
    assert trunk.episode.ok, trunk.problems
    kept = list(kept_turns(tmp_path / "kept"))
    assert [(turn.turn, turn.unrestorable) for turn in kept] == [(at, None) for at, _ in enumerate(STEPS, 1)]
    asked = [json.dumps(one.body) for one in trunk.asked(MAIN_MODEL)]
    for turn in kept[1:] if WHOLE else kept[1::2]:
        row = TurnRow(kept_turn=str(turn.place), digest=turn.digest).model_dump()
        async with environment(tmp_path / f"branch{turn.turn}", row) as served:
            branch = await served.play(served.slots()[0])
        assert branch.episode.ok, branch.problems
        again = [json.dumps(one.body) for one in branch.asked(MAIN_MODEL)]
        assert again[0] == asked[turn.turn - 1]
        assert len(again) == len(asked) + 1 - turn.turn
        assert branch.main.info["branch"]["same_request"] is True
        calls = turn.turn - 1
        assert len(branch.asked(SUB_MODEL)) == len(trunk.asked(SUB_MODEL)) - calls
        own, before = ([node.message for node in one.sub.nodes][: 2 * calls] for one in (branch, trunk))
        assert own == before
        assert branch.main.metrics["sub_llm_turns"] == trunk.main.metrics["sub_llm_turns"]
        assert branch.main.metrics["history_forks"] == branch.main.metrics["sub_llm_history_forks"] == 0
