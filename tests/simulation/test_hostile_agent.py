"""An agent that wants another reward than it earned: its programs look for the ledger, for a reset, for its neighbour.

The agent is confined as OpenCode is; the model has it run a program that knows what an agent may know: its own
tool URL, from OpenCode's configuration.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest
from verifiers.v1.trace import WireTrace

from tests.simulation import ledgers
from tests.support.replies import bash, call
from tests.support.rows import write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

LAKE = {"slippery": False, "map": ["SFFF", "FHFH", "FFFH", "HFFG"]}
ATTACK = (Path(__file__).parent / "attack.py").read_text()


class Hostile:
    """Attacks first, from its shell; then plays one move down through its tool, and ends."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        if request.turn == 0:
            return bash(f"cat > /tmp/attack.py <<'END'\n{ATTACK}END\npython3 /tmp/attack.py")
        return call("frozen_lake_move", direction="down") if request.turn == 1 else Reply(text="done")


@pytest.fixture(scope="module", params=["shared", "rollout"])
def attacked(request: pytest.FixtureRequest, shared_home: UserHome) -> Iterator[FinishedEvaluation]:
    """Two rollouts of one seed that attack at the same time."""
    rows = write_rows(shared_home.root / "rows.jsonl", [{"id": name, "seed": 1, "config": LAKE} for name in ("a", "b")])
    words = ["opencode-simulation", "--env.taskset.dataset", str(rows), "-c", "2"]
    words += ["--env.taskset.task.server", request.param]

    async def run() -> FinishedEvaluation:
        async with ScriptedModel(Hostile()) as model:
            return await shared_home.run(request.param, model.base_url, *words)

    yield asyncio.run(run())
    assert shared_home.leftovers() == []


def report(trace: WireTrace) -> dict[str, list[str]]:
    """What the attack found, as it printed it."""
    text = next(str(message.content) for message in trace.messages if message.role == "tool")
    found: dict[str, list[str]] = json.loads(text.strip().splitlines()[-1])
    return found


def test_what_the_agents_programs_do_at_the_tool_url_are_actions_in_their_own_ledger(
    attacked: FinishedEvaluation,
) -> None:
    for name in ("a", "b"):
        trace = attacked.trace(name)
        assert trace.ok, (trace.errors, attacked.log)
        found = report(trace)
        assert found["own move"] == ["row 0, column 1"]
        steps = ledgers.played(trace).steps
        assert [(entry.tool, entry.arguments["direction"]) for entry in steps] == [("move", "right"), ("move", "down")]
        assert trace.reward == 0.0


def test_no_other_route_and_no_other_rollouts_world_is_reached(attacked: FinishedEvaluation) -> None:
    for name in ("a", "b"):
        found = report(attacked.trace(name))
        assert found["tried"], found
        assert (found["reached"], found["sockets"], found["secrets"]) == ([], [], [])


def test_nothing_that_was_tried_ended_changed_or_paid_an_episode(attacked: FinishedEvaluation) -> None:
    for name in ("a", "b"):
        whole = ledgers.played(attacked.trace(name)).summary
        assert (whole.total_reward, whole.error) == (0.0, None)
        assert whole.terminated, "the second move goes into the hole below, from where the first one led"
