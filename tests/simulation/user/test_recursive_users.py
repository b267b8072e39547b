"""A user on the other side of a recursive agent: each of the three has its own model calls, trace and standing."""

from pathlib import Path

import pytest
from opencode_env.scripted_model import ChatRequest, Reply, Script, ScriptedModel, ScriptPolicy
from opencode_env.user_simulation import STOP

from tests.rlm.episodes import QUESTION, PolicyByRole, play, serving
from tests.support.replies import call

pytestmark = pytest.mark.usefixtures("light_opencode")

USER = "the-user"
ASKED = call("llm_subcall", prompt="What is it?", files=[])
FIRST, SECOND = Reply(text="Seven."), Reply(text="done")


def answer(request: ChatRequest) -> Reply:
    """What the sub model says."""
    return Reply(text=f"sub says {request.prompt}")


async def test_a_scripted_user_goes_on_with_an_agent_that_recurses(tmp_path: Path) -> None:
    steps = [ASKED, FIRST, ASKED, SECOND]
    played = await play(tmp_path, steps, answer, user_simulation={"script": ["And now?"]})
    assert played.problems == []
    main, sub = played.episode.traces
    assert (main.stop_condition, main.reward) == ("user_stop", 1.0)
    assert main.info["user_simulation"] == {"played_by": "script", "turns": 1}
    assert (main.num_branches, main.num_turns, main.info["agent"]["segments"]) == (1, 4, 2)
    assert (main.metrics["main_turns"], main.metrics["sub_llm_calls"], sub.num_turns) == (4, 2, 2)
    assert played.tool_results() == ["sub says What is it?"] * 2


async def test_a_model_plays_the_user_of_an_agent_that_recurses(tmp_path: Path) -> None:
    user = ScriptPolicy(Script(steps=(Reply(text="Why seven?"), Reply(text=STOP)), model=USER))
    agents = PolicyByRole([FIRST, ASKED, SECOND], answer)
    wants = {"enabled": True, "system_prompt": "You want a number.", "llm": USER}
    row = {"id": "one", "question": QUESTION, "answer": "done", "user_simulation": wants}
    async with (
        ScriptedModel(lambda request: (user if request.model == USER else agents)(request)) as model,
        serving(model, tmp_path, [row]) as served,
    ):
        (slot,) = served.slots()
        played = await served.play(slot)
    assert played.problems == []
    by_seat = {trace.agent.name: trace for trace in played.episode.traces if trace.agent is not None}
    main = by_seat["agent"]
    trainable = {name: trace.agent.trainable for name, trace in by_seat.items()}
    assert trainable == {"agent": True, "sub": False, "user": False}
    assert (main.stop_condition, main.reward, main.metrics["sub_llm_calls"]) == ("user_stop", 1.0, 1)
    assert main.info["user_simulation"] == {"played_by": USER, "turns": 1}
