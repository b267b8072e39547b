"""A rollout goes on from any kept turn as the one did that it was kept of: requests, files, and trace.

The light program plays; OpenCode plays generated conversations in `test_random.py`, and these in `make test-whole`.
"""

import stat
from pathlib import Path

import pytest
import pytest_asyncio
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_runs.turns.kept import KeptTurn, kept_turns

from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.turns.playing import Played, config_of, files, play, text, write_turns

pytestmark = pytest.mark.usefixtures("module_light_but_in_whole")

ROW = {"id": "one", "question": "Count.", "setup": "echo begun >begun; mkfifo pipe", "verify": ["test -s two"]}
SCRIPT = [
    bash("echo 1 >one; ln -s one link; mkdir -m 700 ~/mine; echo s >/dev/shm/s; touch -d @1000000000 one"),
    bash("cat one begun >two; chmod 640 two; stat -c %Y one; ls -ld pipe"),
    bash("rm link; ls; cat /dev/shm/s"),
    Reply(text="Done."),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trunk(places: Path, module_light_but_in_whole: None) -> Played:
    """A rollout with every turn kept."""
    rows = write_rows(places / "rows.jsonl", [ROW])
    return await play(config_of(rows, places / "trunk"), ScriptPolicy.of(*SCRIPT))


BRANCHED = (1, 3)
"""The turns that are gone back to."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def branches(trunk: Played, places: Path) -> Played:
    """A rollout from some of its kept turns, with every turn kept again."""
    chosen = [turn for turn in turns(places / "trunk") if turn.turn in BRANCHED]
    dataset = write_turns(places / "chosen.jsonl", chosen)
    return await play(config_of(dataset, places / "branches"), ScriptPolicy.of(*SCRIPT))


def turns(folder: Path) -> list[KeptTurn]:
    """The kept turns of a folder."""
    return list(kept_turns(folder))


def test_every_turn_is_kept_private_and_whole(trunk: Played, places: Path) -> None:
    (trace,) = trunk.traces
    assert trace.ok, trace.errors
    kept = turns(places / "trunk")
    assert [(turn.turn, turn.unrestorable) for turn in kept] == [(at, None) for at in (1, 2, 3, 4)]
    assert {turn.trace_id for turn in kept} == {trace.id}
    assert trace.metrics["turns_kept"] == 4
    held, whole = (trace.metrics[f"turns_{name}_seconds"] or 0 for name in ("held", "kept"))
    assert 0 < held < whole
    for folder in (places / "trunk", places / "trunk" / trace.id, kept[0].place, kept[0].place / "files"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (places / "trunk" / trace.id / "ended").exists()


def test_a_branch_asks_first_what_the_trunk_asked_and_goes_on_the_same(
    trunk: Played, branches: Played, places: Path
) -> None:
    (trace,) = trunk.traces
    asked = [text(body) for body in trunk.bodies(trace)]
    for turn, branch in zip(BRANCHED, branches.traces, strict=True):
        assert branch.ok, branch.errors
        assert [text(body) for body in branches.bodies(branch)] == asked[turn - 1 :]
        assert branch.info["branch"]["same_request"] is True
        assert branch.reward == trace.reward == 1.0
        assert (branch.num_turns, branch.metrics["own_turns"]) == (4, 5 - turn)
        assert (branch.num_branches, branch.metrics["history_forks"]) == (1, 0)
        assert [node.message for node in branch.nodes] == [node.message for node in trace.nodes]


def test_the_files_of_a_branch_are_those_of_the_trunk(branches: Played, places: Path) -> None:
    first = {turn.turn: files(turn) for turn in turns(places / "trunk")}
    assert first[4]["/app/two"] == ("f", 0o640, b"1\nbegun\n")
    assert first[4]["/app/pipe"][0] == "p"
    again = turns(places / "branches")
    assert len(again) == 4 + 2
    for turn in again:
        assert files(turn) == first[turn.turn]
        assert turn.origin is not None
        assert turn.origin.turn <= turn.turn


@pytest.mark.parametrize("limit", ["max_turns", "max_output_tokens"])
async def test_a_turn_before_which_a_limit_is_used_up_is_refused(trunk: Played, places: Path, limit: str) -> None:
    (turn,) = [turn for turn in turns(places / "trunk") if turn.turn == 3]
    refused = await play(config_of(turn.place, agent={limit: 2}), ScriptPolicy.of(*SCRIPT))
    (trace,) = refused.episodes[0].traces
    assert [error.type for error in trace.errors] == ["TaskError"]
    assert f"uses up {limit}: raise --env.agent.{limit.replace('_', '-')}" in trace.errors[0].message
    assert (trace.rewards, refused.requests) == ({}, {})
