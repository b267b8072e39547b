"""From a kept turn before or behind a summary a rollout goes on as without: the same requests, byte for byte."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import ChatRequest, Reply
from opencode_runs.turns.kept import kept_turns

from tests.opencode.test_compaction import RESERVE, SUMMARY, WINDOW, is_summary
from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.turns.playing import config_of, play, text, write_turns

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

ROW = {"id": "one", "question": "Count the numbers.", "answer": "x"}
SAID = "And that was seq {}00000."


def counts(request: ChatRequest) -> Reply:
    """The next of eight long results, by what the request says of the one before."""
    done = max(map(int, re.findall(r"seq (\d+)00000", json.dumps(request.body.model_dump(mode="json")))), default=0)
    if SUMMARY in request.prompt:
        return Reply(text=SAID.format(done))
    return bash(f"seq {done + 1}00000 {done + 1}01400") if done < 8 else Reply(text="Done.")


def said(body: Mapping[str, Any]) -> str:
    """What a request says; what its answer may have is estimated anew in the first of a branch."""
    return text({name: body.get(name) for name in ("messages", "tools")})


@pytest.mark.parametrize("planned", [True, False])
async def test_a_branch_is_summarised_as_its_trunk(planned: bool, tmp_path: Path) -> None:
    told = WINDOW if planned else 10 * WINDOW  # what OpenCode does not know of is refused
    agent = {"harness": {"context_window": told, "window_reserve": RESERVE, "disable_compaction": False}}
    rows = write_rows(tmp_path / "rows.jsonl", [ROW])
    trunk = await play(config_of(rows, tmp_path / "kept", agent=agent), counts, window=WINDOW)
    (trace,) = trunk.traces
    assert trace.ok, trace.errors
    asked = trunk.bodies(trace)
    summaries = [number for number, body in enumerate(asked) if is_summary(body)]
    assert len(summaries) >= 1 + planned
    kept = {turn.digest: turn for turn in kept_turns(tmp_path / "kept")}
    by_turn = sorted(kept.values(), key=lambda turn: turn.turn)
    first, behind, later = by_turn[1], *by_turn[summaries[0] + 1 - (not planned) :][:2]
    branched = await play(
        config_of(write_turns(tmp_path / "turns.jsonl", [first, behind, later]), agent=agent), counts, window=WINDOW
    )
    texts = [said(body) for body in asked]
    for branch in branched.traces:
        assert branch.ok, branch.errors
        own = [said(body) for body in branched.bodies(branch)]
        assert own == texts[len(texts) - len(own) :]
        assert branch.info["history"] == trace.info["history"]
    begun = [len(texts) - len(branched.bodies(branch)) for branch in branched.traces]
    assert 0 < begun[0] < summaries[0] < begun[1] < begun[2]


async def test_a_branch_of_a_smaller_window_begins_with_the_summary_that_is_due_then(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [ROW])
    await play(config_of(rows, tmp_path / "kept"), counts)
    last = max(kept_turns(tmp_path / "kept"), key=lambda turn: turn.turn)
    agent = {"harness": {"context_window": WINDOW, "window_reserve": RESERVE, "disable_compaction": False}}
    branched = await play(config_of(write_turns(tmp_path / "turns.jsonl", [last]), agent=agent), counts)
    (branch,) = branched.traces
    assert branch.ok, branch.errors
    assert is_summary(branched.bodies(branch)[0])
    history = branch.info["history"]
    assert (history["forks"], [one["used"] for one in history["summaries"]]) == (0, [True])


async def test_a_branch_goes_on_behind_a_summary_of_another_seats_model(tmp_path: Path) -> None:
    """What was said there is in the kept turn's record; the branch's own summaries are made there too."""
    agent = {"harness": {"context_window": WINDOW, "window_reserve": RESERVE, "disable_compaction": False}}
    options: dict[str, Any] = {"agent": agent, "summary": {"model": "other"}}
    rows = write_rows(tmp_path / "rows.jsonl", [ROW])
    trunk = await play(config_of(rows, tmp_path / "kept", **options), counts, window=WINDOW)
    (trace,) = trunk.traces
    assert trace.ok, trace.errors
    summaries = trace.info["history"]["summaries"]
    assert len(summaries) >= 2
    texts = [said(body) for body in trunk.bodies(trace)]
    first = trace.info["history"]["sections"][1]["first"]
    turn = 1 + sum(node.sampled for node in trace.nodes[:first])
    kept = next(one for one in kept_turns(tmp_path / "kept") if one.turn == turn + 1)
    branched = await play(config_of(write_turns(tmp_path / "turns.jsonl", [kept]), **options), counts, window=WINDOW)
    (branch,) = branched.traces
    assert branch.ok, branch.errors
    own = [said(body) for body in branched.bodies(branch)]
    assert own == texts[turn:]
    history = branch.info["history"]
    assert [one["message"] for one in history["summaries"]] == [one["message"] for one in summaries]
    assert (history["forks"], [one["used"] for one in history["summaries"]]) == (0, [True] * len(summaries))
