"""Generated conversations go on as they did from turns chosen by chance, with the same answers.

One conversation is played, with `WHOLE=1` forty; in its own way one goes on in `test_hostile.py`.
"""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opencode_env.scripted_model import ChatRequest, Policy, Reply, Script, ScriptPolicy
from opencode_runs.turns.kept import KeptTurn, kept_turns

from tests.history.outputs import Conversation, conversations
from tests.support.rows import write_rows
from tests.support.sizes import size
from tests.turns.playing import config_of, files, play, text, write_turns

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

AT_ONCE = size(1, 2)


def scripts(said: Sequence[Sequence[Reply]]) -> Policy:
    """Plays each conversation by its number."""
    played = ScriptPolicy(*(Script(steps=tuple(one), match=f"conversation {at}:") for at, one in enumerate(said)))

    def answer(request: ChatRequest) -> Reply:
        reply = played(request)
        # The scripted model's own ids hold the rollout's; what stands there was generated.
        calls = [
            call if call.id is not None else call.model_copy(update={"id": f"call_{request.turn}_{at}"})
            for at, call in enumerate(reply.tool_calls)
        ]
        return reply.model_copy(update={"tool_calls": tuple(calls)})

    return answer


async def play_and_go_back(said: Sequence[Sequence[Reply]], place: Path) -> None:
    """Play the conversations, and each again from one of its kept turns."""
    questions = [{"id": str(at), "question": f"conversation {at}: go", "answer": "none"} for at in range(len(said))]
    trunk = await play(config_of(write_rows(place / "rows.jsonl", questions), place / "trunk"), scripts(said))
    chosen: list[KeptTurn] = []
    for trace in trunk.traces:
        kept = [turn for turn in kept_turns(place / "trunk" / trace.id) if turn.unrestorable is None]
        assert [turn.turn for turn in kept] == list(range(1, trace.num_turns + 1))
        chosen.append(random.Random(trace.num_turns).choice(kept))
    before = [files(turn) for turn in chosen]
    dataset = write_turns(place / "turns.jsonl", chosen)
    same = await play(config_of(dataset, place / "same"), scripts(said))
    for turn, first, again in zip(chosen, trunk.traces, same.traces, strict=True):
        asked = [text(one) for one in trunk.bodies(first)]
        assert [text(body) for body in same.bodies(again)] == asked[turn.turn - 1 :]
        assert [node.message for node in again.nodes] == [node.message for node in first.nodes]
        assert (again.num_branches, again.stop_condition) == (first.num_branches, first.stop_condition)
        assert last_files(place / "same" / again.id) == last_files(place / "trunk" / first.id)
    assert [files(turn) for turn in chosen] == before


def last_files(rollout: Path) -> dict[str, Any]:
    """What the agent had at the last kept turn of a rollout."""
    *_, last = kept_turns(rollout)
    return files(last)


@settings(
    max_examples=size(1, 20),
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(group=st.lists(conversations(range(4, 10)), min_size=AT_ONCE, max_size=AT_ONCE))
def test_a_kept_turn_goes_on_as_it_was(group: list[Conversation], tmp_path_factory: pytest.TempPathFactory) -> None:
    said = [one.with_words().segments[0] for one in group]
    asyncio.run(play_and_go_back(said, tmp_path_factory.mktemp("random")))
