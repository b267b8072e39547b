"""verifiers' own bash harness, its interception and its tool servers work in a lent sandbox, unchanged."""

import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel
from rollout_sandbox.confined import Bind, ConfinedRuntime

from tests.support.replies import call

from .conftest import confined

pytestmark = pytest.mark.usefixtures("sandboxes")

TOOLS = Path(__file__).parent / "tools"
sys.path.insert(0, str(TOOLS))  # verifiers starts a tool server by its module's name, `python -m sandbox_lookup_tools`
LookupToolset = importlib.import_module("sandbox_lookup_tools").LookupToolset


class LookupTask(vf.Task[vf.TaskData, Any, vf.TaskConfig]):
    colocated = False

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset[Any, Any]]:
        return [LookupToolset(vf.ToolsetConfig(colocated=cls.colocated))]


class ColocatedTask(LookupTask):
    colocated = True


def policy(request: ChatRequest) -> Reply:
    """Calls `bash`, then the tool server's only tool, then ends."""
    turns = [call("bash", command="echo from the agent > /app/answer.txt; id -u")]
    turns += [call(name) for name in request.tools if name.endswith("where")]
    return [*turns, Reply(text="done")][request.turn]


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[vf.Agent]:
    monkeypatch.setenv("SANDBOX_TEST_KEY", "key")
    async with ScriptedModel(policy) as model:
        client = vf.EvalClientConfig(base_url=model.base_url, api_key_var="SANDBOX_TEST_KEY")
        yield vf.Agent(vf.AgentConfig(model="m", client=client, runtime=vf.SubprocessConfig()))


def _contents(trace: vf.Trace[Any]) -> str:
    return " ".join(str(getattr(node.message, "content", "")) for node in trace.nodes)


async def test_the_bash_harness_runs_in_a_lent_sandbox_with_a_tool_server_on_the_host(
    runtime: ConfinedRuntime, agent: vf.Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOOLS))
    trace = await agent.run(LookupTask(vf.TaskData(idx=0, prompt="go"), vf.TaskConfig()), runtime=runtime)
    assert trace.ok, trace.errors
    assert await runtime.read("answer.txt") == b"from the agent\n"
    assert "1000" in _contents(trace)
    assert trace.agent.runtime is not None
    assert trace.agent.runtime.borrowed
    assert vf.Trace.model_validate_json(trace.model_dump_json()).agent.runtime == trace.agent.runtime
    assert "server as uid" in _contents(trace)
    assert "server as uid 1000 in /app" not in _contents(trace)


async def test_a_colocated_tool_server_runs_inside_when_it_may_see_python(agent: vf.Agent) -> None:
    task = ColocatedTask(vf.TaskData(idx=0, prompt="go"), vf.TaskConfig())
    task.runtime_env = lambda: {"PYTHONPATH": "/tools"}  # type: ignore[method-assign]
    async with confined(Bind(TOOLS, "/tools"), python_env=True) as box:
        trace = await agent.run(task, runtime=box)
    assert trace.ok, trace.errors
    assert "server as uid 1000 in /app" in _contents(trace)


async def test_a_colocated_server_without_python_says_what_to_set(runtime: ConfinedRuntime, agent: vf.Agent) -> None:
    trace = await agent.run(ColocatedTask(vf.TaskData(idx=0, prompt="go"), vf.TaskConfig()), runtime=runtime)
    assert not trace.ok
    assert trace.errors[-1].type == vf.SandboxError.__name__
    assert "--env.sandbox.python_env true" in trace.errors[-1].message
