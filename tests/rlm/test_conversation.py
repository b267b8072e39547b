"""A conversation of several segments: OpenCode starts anew for each and finds out again who is main and who is sub."""

from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.interception import SubRollout, SubSettings
from opencode_env.cli_agent.interception.serving import role_interception
from opencode_env.cli_agent.sandbox import LocalSandboxConfig, provision_confined
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from opencode_rlm.harness import OpenCodeRLMHarness
from opencode_rlm.harness_config import OpenCodeRLMHarnessConfig
from verifiers.v1.agent import make_agent
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.interception import InterceptionServerConfig

from tests.rlm.episodes import MAIN_MODEL, SUB_MODEL
from tests.support.replies import call

pytestmark = pytest.mark.opencode

AnyTask = vf.Task[Any, Any, Any]


def policy(request: ChatRequest) -> Reply:
    """Asks a sub-LLM in every segment, and then repeats its answer."""
    if request.model == SUB_MODEL:
        return Reply(text=f"sub of {request.prompt}")
    last = request.body.messages[-1]
    return Reply(text=last.text) if last.role == "tool" else call("llm_subcall", prompt=last.text)


async def test_a_continued_session_is_still_the_main_agent() -> None:
    async with ScriptedModel(policy) as model, role_interception(InterceptionServerConfig()) as interception:
        client = vf.EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        harness = OpenCodeRLMHarnessConfig(id="opencode-rlm")
        local = vf.SubprocessConfig()
        agent = make_agent(
            vf.AgentConfig(harness=harness, runtime=local, model=MAIN_MODEL, client=client),
            interception=interception,
        )
        null = NullHarnessConfig(id="null")
        seat = make_agent(vf.AgentConfig(harness=null, runtime=local, model=SUB_MODEL, client=client))
        sides: list[SubRollout] = []

        def minted(main: AnyTrace) -> None:
            sides.append(SubRollout(main, seat, SubSettings()))
            sides[-1].begin()

        assert isinstance(agent.harness, OpenCodeRLMHarness)
        task: AnyTask = vf.Task(vf.TaskData(idx=0, prompt=None))
        binds = await agent.harness.local_binds()
        async with (
            provision_confined(LocalSandboxConfig(), binds) as box,
            agent.interaction(task, runtime=box, on_trace=minted) as talk,
        ):
            assert "sub of one" in (await talk.turn("one")).last_reply
            assert "sub of two" in (await talk.turn("two")).last_reply
        (side,) = sides
        await side.end()
    assert (side.main.num_turns, side.trace.num_turns) == (4, 2)
    assert side.main.num_branches == 1
    assert side.trace.num_branches == 2
