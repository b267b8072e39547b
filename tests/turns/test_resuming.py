"""A killed evaluation goes on with its unfinished rollouts from their last kept turn; nothing is sampled twice but the
call that was under way. The light program plays, in `make test-whole` OpenCode; in a container it is resumed in
`test_podman.py` too."""

import re
from collections import Counter
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_runs.turns.kept import ENDED

from tests.support.held_model import HeldModel
from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.support.user_home import UserHome
from tests.support.waiting import until
from tests.turns.playing import same_ids

pytestmark = pytest.mark.usefixtures("light_but_in_whole")

SCRIPT = [*(bash(f"echo {number} >>done; sleep {3 * (number == 2)}") for number in range(4)), Reply(text="Done.")]
ROW = {"id": "one", "question": "Count.", "setup": "echo setup >>done", "verify": ['[ "$(wc -l <done)" = 5 ]']}


def turn_of(body: dict[str, object]) -> int:
    """Which main call a request is."""
    messages = body["messages"]
    assert isinstance(messages, list)
    return 1 + [message["role"] for message in messages].count("assistant")


@pytest.mark.parametrize("where", ["in a call", "in a tool"])
async def test_a_killed_rollout_goes_on_from_its_last_kept_turn(where: str, home: UserHome, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [ROW])
    arguments = ("opencode-env", "--env.taskset.dataset", str(rows), "--env.turns.keep", str(tmp_path / "kept"))
    held = (lambda request: request.turn == 2) if where == "in a call" else (lambda request: False)
    async with HeldModel(same_ids(ScriptPolicy.of(*SCRIPT)), held) as model:
        async with home.running("r", model.base_url, *arguments) as first:
            folder = tmp_path / "kept"
            wanted = "*/0003/turn.json" if where == "in a call" else "*/0003/answer.msgpack"
            await until(lambda: list(folder.glob(wanted)))
            first.process.kill()
            await first.process.ended()
        model.released.set()
        finished = await home.run("r", model.base_url, *arguments, "--resume")
    assert finished.exit_code == 0, finished.log
    (episode,) = finished.episodes
    (trace,) = episode.traces
    assert trace.ok, trace.errors
    assert (trace.reward, trace.num_turns, trace.num_branches) == (1.0, 5, 1)
    assert trace.info["branch"]["resumed"] is True
    assert re.search(rf"rollout goes on from turn \d: task=\S+ kept={folder}/{trace.id}/0003", finished.log)
    asked = Counter(turn_of(request.body) for request in model.requests)
    twice = {3: 2} if where == "in a call" else {}
    assert asked == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1} | twice
    (rollout,) = folder.iterdir()
    assert rollout.name == trace.id
    assert (rollout / ENDED).exists()
    assert home.leftovers() == []
