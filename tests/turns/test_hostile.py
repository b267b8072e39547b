"""What an agent leaves in a kept turn comes back as files, and never to life; what it rewrote trains nothing."""

import gzip
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.errors import DatasetError
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_env.taskset.data import OpenCodeTaskData, named_turns
from opencode_runs.turns.kept import FILES, kept_turns
from rollout_sandbox.toolbox.kept_files import INDEX
from verifiers.v1.episode import Episode

from tests.opencode.test_conversation import LEFT
from tests.support.families import Qwen3
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL
from tests.support.sizes import size
from tests.support.token_engine import Call, Says, TokenEngine
from tests.training.trained import Lines, train_client
from tests.turns.playing import config_of, episodes, play, write_turns
from tests.turns.test_exact import says

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

REWRITE = """python3 - <<'END'
import os, sqlite3
store = sqlite3.connect(os.environ["OPENCODE_ENV_STATE"] + "/data/opencode/opencode.db", timeout=60)
store.execute("update part set data = replace(data, 'first', 'other')")
store.commit()
END
"""
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
PLANT = LEFT.partition("(setsid")[0] + "echo first"
SCRIPT = [PLANT, REWRITE, OTHER_STORE, "(setsid sleep 600 >/dev/null 2>&1 &)"]
LOOK = "ls /app; cat $OPENCODE_ENV_STATE/config/opencode/opencode.jsonc"
FAMILY = Qwen3(True)
REWRITTEN = size((3,), (1, 2, 3))
"""Turns that are gone back to, of which the first two stand before the fork."""
LOST = 4
"""That of the other store."""
Trunk = tuple[AnyTrace, list[Call]]
Branches = tuple[dict[int, AnyTrace], list[Call]]


async def played(engine: TokenEngine, tokenizer: Path, *rows: Path) -> tuple[list[Episode[Any, Any, Any]], list[Call]]:
    """Episodes under a training client, and what their models were asked."""
    async with engine.serving() as url:
        done = await episodes(config_of(*rows), train_client(url, FAMILY, tokenizer), MAIN_MODEL)
    return done, engine.of(MAIN_MODEL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trunk(places: Path, tokenizer: Path) -> Trunk:
    """A rollout that plants a plugin and configuration, rewrites what was said in OpenCode's store, puts another one in
    its place, and then leaves a process running."""
    rows = write_rows(places / "rows.jsonl", [{"id": "one", "question": "Go.", "answer": "x"}])
    engine = TokenEngine(tokenizer, FAMILY, Lines(FAMILY, says(FAMILY, *SCRIPT), {}))
    (episode,), asked = await played(engine, tokenizer, rows, places / "kept")
    return episode.traces[0], asked


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def branches(trunk: object, places: Path, tokenizer: Path) -> Branches:
    """Rollouts that look around from turns before the process, by turn."""

    def looks(model: str, prompt: str) -> Says:
        return Says(FAMILY.answer("Done.")) if LOOK in prompt else says(FAMILY, LOOK)[0]

    turns = [turn for turn in kept_turns(places / "kept") if turn.turn in (*REWRITTEN, LOST)]
    rows = write_turns(places / "turns.jsonl", turns)
    done, asked = await played(TokenEngine(tokenizer, FAMILY, looks), tokenizer, rows)
    return {turn.turn: episode.traces[0] for turn, episode in zip(turns, done, strict=True)}, asked


def test_a_turn_with_a_process_of_the_agents_is_kept_with_the_reason_and_not_offered(
    trunk: Trunk, places: Path
) -> None:
    trace, _ = trunk
    assert trace.ok, trace.errors
    assert (trace.num_turns, trace.num_branches, trace.metrics["history_forks"]) == (5, 2, 1)
    kept = list(kept_turns(places / "kept"))
    assert [turn.unrestorable for turn in kept] == [None] * 4 + ["processes ran beside the agent's program: sleep"]
    rows = named_turns(places / "kept", OpenCodeTaskData)
    assert rows is not None
    assert [row.kept_turn.kept_turn for row in rows if row.kept_turn] == [str(turn.place) for turn in kept[:4]]
    with pytest.raises(DatasetError, match=r"none of its 1 kept turns can be restored: processes ran .*: sleep"):
        named_turns(kept[4].place, OpenCodeTaskData)


def test_planted_plugins_and_configuration_do_not_come_back_to_life(trunk: Trunk, branches: Branches) -> None:
    traces, asked = branches
    for turn in REWRITTEN:
        branch = traces[turn]
        assert branch.ok, branch.errors
        result = [str(message.content) for message in branch.messages if message.role == "tool"][-1]
        assert "ran" not in result.split("cat:")[0]
        assert "opencode.jsonc: No such file" in result
        assert branch.metrics["own_turns"] == 2
        assert trunk[1][turn - 1].prompt in [call.prompt for call in asked]


def test_a_branch_of_a_rewritten_conversation_shows_the_fork_and_trains_nothing(
    trunk: Trunk, branches: Branches
) -> None:
    for turn in REWRITTEN:
        branch = branches[0][turn]
        assert branch.info["branch"] == {
            "trace_id": trunk[0].id,
            "turn": turn,
            "digest": branch.task.data.kept_turn.digest,
            "resumed": False,
            "same_request": True,
            "forked": turn > 2,  # with the third turn's request, and before the fourth one's
        }
        assert bool(branch.metrics["history_forks"]) == (turn > 2)
        assert any(any(node.mask) or len(node.logprobs) for node in branch.nodes) == (turn <= 2)


def test_a_turn_that_opencode_does_not_go_on_with_is_an_error_and_no_reward(branches: Branches) -> None:
    """The store that its agent has put in place of OpenCode's knows no session: no model is asked."""
    traces, asked = branches
    trace = traces[LOST]
    assert [error.type for error in trace.errors] == ["HarnessError"]
    assert "without a single model call" in trace.errors[0].message
    assert len(asked) == 2 * len(REWRITTEN)
    assert not any(any(node.mask) for node in trace.nodes)
    assert trace.info["branch"]["forked"]


@pytest.mark.usefixtures("light_but_in_whole")
async def test_a_turn_whose_agent_had_removed_its_store_is_an_error_by_name(tmp_path: Path) -> None:
    """No reward: the continuation's policy has not done it, and it has not been asked."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", "question": "Go.", "answer": "x"}])
    await play(config_of(rows, tmp_path / "kept"), ScriptPolicy.of(Reply(text="Done.")))
    (turn,) = kept_turns(tmp_path / "kept")
    index = turn.place / FILES / INDEX
    lines = gzip.decompress(index.read_bytes()).splitlines(keepends=True)
    index.write_bytes(gzip.compress(b"".join(line for line in lines if b"/tmp/opencode/data" not in line)))
    again = await play(config_of(turn.place), ScriptPolicy.of(Reply(text="Done.")))
    (trace,) = again.episodes[0].traces
    assert [error.type for error in trace.errors] == ["TaskError"]
    assert f"kept turn {turn.place} cannot be continued" in trace.errors[0].message
    assert "the store of the conversation is gone" in trace.errors[0].message
    assert not again.requests
