"""Turns that earlier code kept are gone on from: the archive holds three, as the code of commit f53ecfa8 wrote them
with OpenCode 1.18.33 and verifiers 0.4.0, before it was arranged anew.

Under other versions of these two they are refused by design: whoever pins others has the archive written anew by the
last commit before, from `SCRIPT`, `test_recursion.STEPS` and `test_worlds.SCRIPT`.
"""

import tarfile
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_runs.turns.kept import TurnRow, read_turn

from tests.support.replies import bash
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.turns import test_recursion, test_worlds
from tests.turns.playing import config_of, play

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

SCRIPT = [
    bash("echo 1 >one; ln -s one link; mkdir -m 700 ~/mine"),
    bash("cat one begun >two; chmod 640 two; rm link"),
    Reply(text="Done."),
]
"""Of a row whose `setup` wrote `begun`, and whose check asks for a file `two` with content."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the turns: one of each environment, by its name."""
    folder = tmp_path_factory.mktemp("kept")
    with tarfile.open(Path(__file__).parent / "data" / "kept_by_f53ecfa8.tar.xz") as archive:
        archive.extractall(folder, filter="tar")
    return folder


async def test_the_agents_files_and_conversation_go_on(kept: Path) -> None:
    played = await play(config_of(kept / "opencode-env"), ScriptPolicy.of(*SCRIPT))
    (trace,) = played.traces
    assert trace.ok, trace.errors
    assert trace.info["branch"]["same_request"] is True
    assert (trace.num_turns, trace.metrics["own_turns"], trace.reward) == (3, 2, 1.0)


async def test_a_world_takes_its_steps_again(kept: Path) -> None:
    played = await play(test_worlds.config(kept / "opencode-simulation"), ScriptPolicy.of(*test_worlds.SCRIPT))
    (trace,) = played.traces
    assert trace.ok, trace.errors
    assert trace.info["branch"]["same_request"] is True
    assert (trace.num_turns, trace.metrics["own_turns"]) == (4, 2)


async def test_sub_llm_calls_before_the_turn_stand_on_the_sub_trace(kept: Path, tmp_path: Path) -> None:
    turn = read_turn(kept / "opencode-rlm")
    row = TurnRow(kept_turn=str(turn.place), digest=turn.digest).model_dump()
    async with test_recursion.environment(tmp_path / "branch", row) as served:
        branch = await served.play(served.slots()[0])
    assert branch.episode.ok, branch.problems
    assert branch.main.info["branch"]["same_request"] is True
    assert len(branch.asked(MAIN_MODEL)) == 2
    assert len(branch.asked(SUB_MODEL)) == 1, "of three sub-LLM calls two came before the turn"
    assert branch.main.metrics["sub_llm_turns"] == 3
    assert branch.main.reward == 1.0
