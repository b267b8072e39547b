"""A conversation of several segments: OpenCode starts anew for each and finds out again who is main and who is sub."""

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.interception.serving import role_interception
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from verifiers.v1.interception import InterceptionServerConfig

from tests.support.replies import call
from tests.support.seats import SUB_MODEL, seated

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]


def policy(request: ChatRequest) -> Reply:
    """Asks a sub-LLM in every segment, and then repeats its answer."""
    if request.model == SUB_MODEL:
        return Reply(text=f"sub of {request.prompt}")
    last = request.body.messages[-1]
    return Reply(text=last.text) if last.role == "tool" else call("llm_subcall", prompt=last.text)


async def test_a_continued_session_is_still_the_main_agent() -> None:
    async with ScriptedModel(policy) as model, role_interception(InterceptionServerConfig()) as interception:
        client = vf.EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        async with seated(client, interception, recursive=True) as seats:
            assert "sub of one" in (await seats.main_agent.turn("one")).last_reply
            assert "sub of two" in (await seats.main_agent.turn("two")).last_reply
    assert (seats.main.num_turns, seats.sub.num_turns) == (4, 2)
    assert seats.main.num_branches == 1
    assert seats.sub.num_branches == 2
