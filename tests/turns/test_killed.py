"""A rollout that is killed again and again, in copies, calls, tools and scoring, comes to its end all the same.

Five moments are chosen by chance, of a rollout of the light program; with `WHOLE=1` two hundred, and of OpenCode.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_runs.turns.kept import ENDED, kept_turns

from tests.support.replies import bash
from tests.support.rows import write_rows
from tests.support.sizes import size
from tests.support.user_home import UserHome
from tests.support.waiting import until
from tests.turns.playing import same_ids
from tests.turns.test_resuming import turn_of

pytestmark = pytest.mark.usefixtures("light_but_in_whole")

TOOLS, KILLS = 5, 5
SCRIPT = [*(bash(f"echo {number} >>done; sleep 0.4") for number in range(TOOLS)), Reply(text="Done.")]
ROW = {"id": "one", "question": "Count.", "verify": [f'sleep 1; [ "$(tr -d "\\n" <done)" = {"01234"[:TOOLS]} ]']}
WHERE = {"in a copy": ".{:04d}", "in a call": "{:04d}/turn.json", "in a tool": "{:04d}/answer.msgpack"}
"""What of the kept turn is there by then; behind the last answer it is scored."""


def passed(kept: Path, turn: int, where: str) -> bool:
    """Whether a rollout has come so far."""
    later = WHERE["in a tool"].format(turn)
    return any((rollout / name).exists() for rollout in kept.iterdir() for name in (WHERE[where].format(turn), later))


@pytest.mark.parametrize("seed", range(size(1, 200 // KILLS)))
async def test_a_rollout_killed_at_moments_chosen_by_chance_ends_as_if_it_were_not(
    seed: int, home: UserHome, tmp_path: Path
) -> None:
    chance, kept = random.Random(seed), tmp_path / "kept"
    kept.mkdir(mode=0o700)
    turns = range(2, len(SCRIPT) + 1)
    moments = [(turn, chance.choice(list(WHERE)), chance.uniform(0, 0.3)) for turn in turns][-KILLS:]
    moments[-1] = (len(SCRIPT), "in a tool", chance.uniform(0, 0.6))  # which is in its scoring
    rows = write_rows(tmp_path / "rows.jsonl", [ROW])
    arguments = ["opencode-env", "--env.taskset.dataset", str(rows), "--env.turns.keep", str(kept)]
    killed = 0
    async with ScriptedModel(same_ids(ScriptPolicy.of(*SCRIPT))) as model:
        for turn, where, later in moments:
            async with home.running("r", model.base_url, *arguments) as run:
                await until(lambda at=(turn, where): passed(kept, *at))  # type: ignore[misc]
                await asyncio.sleep(later)
                run.process.kill()
                await run.process.ended()
                killed += 1
            arguments = [*arguments[:5], "--resume"]
        finished = await home.run("r", model.base_url, *arguments)
    assert finished.exit_code == 0, finished.log
    (episode,) = finished.episodes
    (trace,) = episode.traces
    assert trace.ok, trace.errors
    assert (trace.reward, trace.num_turns, trace.num_branches) == (1.0, len(SCRIPT), 1)
    # Of a request that its process was killed in sending there is no body.
    asked = Counter(turn_of(request.body) for request in model.requests if request.body)
    assert set(asked) == set(range(1, len(SCRIPT) + 1))
    assert asked.total() <= len(SCRIPT) + killed  # the calls that were under way
    (rollout,) = kept.iterdir()
    assert rollout.name == trace.id
    assert (rollout / ENDED).exists()
    assert [turn.turn for turn in kept_turns(rollout)] == [*range(1, len(SCRIPT) + 1)]
    assert home.leftovers() == []
