"""Calls that no server knows."""

from typing import Any

import verifiers.v1 as vf
from aiohttp.test_utils import make_mocked_request
from opencode_env.cli_agent.interception import Gateway, GatewayConfig
from opencode_env.cli_agent.interception.callers import AgentProgram
from opencode_env.cli_agent.interception.gateway import Call
from verifiers.v1.agent import make_agent
from verifiers.v1.dialects import ChatDialect
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import AgentInfo, Trace, TraceTask


def session() -> RolloutSession:
    """One that no server knows."""
    client = vf.EvalClientConfig(base_url="http://127.0.0.1:9", api_key_var="NO_SUCH_KEY")
    seat = vf.AgentConfig(harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig(), model="m", client=client)
    task: TraceTask[Any] = TraceTask(type="Task", data=vf.TaskData(idx=0, prompt="x"))
    agent = make_agent(seat)
    return RolloutSession(ctx=agent.ctx, trace=Trace(task=task, agent=AgentInfo(config=agent.config)))


def call_of(serving: RolloutSession) -> Call:
    """A main call of that session, with nothing read of it."""
    request = make_mocked_request("POST", "/v1/chat/completions")
    return Call(request, ChatDialect(), Gateway(GatewayConfig(), serving, AgentProgram(), "secret"), session=serving)
