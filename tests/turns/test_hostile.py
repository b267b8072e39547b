"""What an agent leaves in a kept turn comes back as files, and never to life."""

import gzip
from pathlib import Path

import pytest
import pytest_asyncio
from agent_sandbox.toolbox.kept_files import INDEX
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_env.taskset.errors import DatasetError
from opencode_env.taskset.kept_turns import named_turns
from opencode_runs.turns.kept import FILES, kept_turns

from tests.opencode.test_conversation import LEFT
from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.turns.playing import Played, config_of, play

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

PLANT = LEFT.partition("(setsid")[0]
OTHER_STORE = """python3 - <<'END'
import os, sqlite3
os.chdir(os.environ["OPENCODE_ENV_STATE"] + "/data/opencode")
with sqlite3.connect("opencode.db", timeout=60) as mine, sqlite3.connect("other") as other:
    mine.backup(other)
    other.execute("delete from session")
other.close()
os.remove("opencode.db-wal")
os.replace("other", "opencode.db")
END
ls $OPENCODE_ENV_STATE/data/opencode"""
SCRIPT = [bash(PLANT), bash(OTHER_STORE), bash("(setsid sleep 600 >/dev/null 2>&1 &)"), Reply(text="Done.")]
LOOK = [SCRIPT[0], bash("ls /app; cat $OPENCODE_ENV_STATE/config/opencode/opencode.jsonc"), Reply(text="Done.")]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the module."""
    return tmp_path_factory.mktemp("turns")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trunk(places: Path, sandboxes: None) -> Played:
    """A rollout that plants a plugin and configuration, puts another store in the place of OpenCode's, and then leaves
    a process running."""
    rows = write_rows(places / "rows.jsonl", [{"id": "one", "question": "Go.", "answer": "x"}])
    return await play(config_of(rows, places / "kept"), ScriptPolicy.of(*SCRIPT))


def test_a_turn_with_a_process_of_the_agents_is_kept_with_the_reason_and_not_offered(
    trunk: Played, places: Path
) -> None:
    assert trunk.traces[0].ok
    kept = list(kept_turns(places / "kept"))
    assert [turn.unrestorable for turn in kept] == [None] * 3 + ["processes ran beside the agent's program: sleep"]
    rows = named_turns(places / "kept", OpenCodeTaskData)
    assert rows is not None
    assert [row.kept_turn.kept_turn for row in rows if row.kept_turn] == [str(turn.place) for turn in kept[:3]]
    with pytest.raises(DatasetError, match=r"none of its 1 kept turns can be restored: processes ran .*: sleep"):
        named_turns(kept[3].place, OpenCodeTaskData)


@pytest.mark.asyncio(loop_scope="module")
async def test_planted_plugins_and_configuration_do_not_come_back_to_life(trunk: Played, places: Path) -> None:
    (turn,) = [turn for turn in kept_turns(places / "kept") if turn.turn == 2]
    played = await play(config_of(turn.place), ScriptPolicy.of(*LOOK))
    (branch,) = played.traces
    assert branch.ok, branch.errors
    result = [str(message.content) for message in branch.messages if message.role == "tool"][-1]
    assert "ran" not in result.split("cat:")[0]
    assert "opencode.jsonc: No such file" in result
    assert played.bodies(branch)[0] == trunk.bodies(trunk.traces[0])[1]
    assert branch.info["branch"]["same_request"] is True


@pytest.mark.asyncio(loop_scope="module")
async def test_a_turn_that_opencode_does_not_go_on_with_is_an_error_and_no_reward(trunk: Played, places: Path) -> None:
    """The store that its agent has put in place of OpenCode's knows no session: no model is asked."""
    (turn,) = [turn for turn in kept_turns(places / "kept") if turn.turn == 3]
    played = await play(config_of(turn.place), ScriptPolicy.of(*LOOK))
    (trace,) = played.episodes[0].traces
    assert [error.type for error in trace.errors] == ["HarnessError"]
    assert "without a single model call" in trace.errors[0].message
    assert not played.requests
    assert not any(any(node.mask) for node in trace.nodes)


@pytest.mark.usefixtures("light_but_in_whole")
async def test_a_turn_whose_agent_had_removed_its_store_is_an_error_by_name(tmp_path: Path) -> None:
    """No reward: the continuation's policy has not done it, and it has not been asked."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", "question": "Go.", "answer": "x"}])
    await play(config_of(rows, tmp_path / "kept"), ScriptPolicy.of(Reply(text="Done.")))
    (turn,) = kept_turns(tmp_path / "kept")
    index = turn.place / FILES / INDEX
    lines = gzip.decompress(index.read_bytes()).splitlines(keepends=True)
    index.write_bytes(gzip.compress(b"".join(line for line in lines if b"/tmp/opencode/data" not in line)))
    played = await play(config_of(turn.place), ScriptPolicy.of(Reply(text="Done.")))
    (trace,) = played.episodes[0].traces
    assert [error.type for error in trace.errors] == ["TaskError"]
    assert f"kept turn {turn.place} cannot be continued" in trace.errors[0].message
    assert "the store of the conversation is gone" in trace.errors[0].message
    assert not played.requests
