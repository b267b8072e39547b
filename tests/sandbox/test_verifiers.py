"""verifiers' own bash harness, its interception and its tool servers work in a lent sandbox, unchanged."""

import importlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agent_sandbox.confined import Bind, ConfinedRuntime, LocalSandboxConfig, provision_confined
from aiohttp import web
from verifiers.v1.agent import Agent
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.configs.task import TaskConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.mcp import Toolset, ToolsetConfig
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.task import Task, TaskData
from verifiers.v1.trace import Trace

from tests.support.served_app import served

pytestmark = pytest.mark.usefixtures("sandboxes")

TOOLS = Path(__file__).parent / "tools"
sys.path.insert(0, str(TOOLS))  # verifiers starts a tool server by its module's name, `python -m sandbox_lookup_tools`
LookupToolset = importlib.import_module("sandbox_lookup_tools").LookupToolset


class LookupTask(Task[TaskData, Any, TaskConfig]):
    colocated = False

    @classmethod
    def toolsets(cls, config: TaskConfig) -> list[Toolset[Any, Any]]:
        return [LookupToolset(ToolsetConfig(colocated=cls.colocated))]


class ColocatedTask(LookupTask):
    colocated = True


def _events(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Call `bash`, then the tool server's only tool, then end."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    names = [entry["function"]["name"] for entry in body.get("tools", [])]
    calls = [("bash", {"command": "echo from the agent > /app/answer.txt; id -u"})]
    calls += [(name, {}) for name in names if name.endswith("where")]
    delta: dict[str, Any] = {"role": "assistant", "content": "done"}
    if turn < len(calls):
        name, arguments = calls[turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"call_{turn}", "type": "function", "function": function}
        delta = {"role": "assistant", "content": "", "tool_calls": [call]}
    reason = "tool_calls" if "tool_calls" in delta else "stop"
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**chunk, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
    ]


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    async def complete(request: web.Request) -> web.Response:
        lines = [json.dumps(event) for event in _events(await request.json())] + ["[DONE]"]
        text = "".join(f"data: {line}\n\n" for line in lines)
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    monkeypatch.setenv("SANDBOX_TEST_KEY", "key")
    async with served(app) as url:
        client = EvalClientConfig(base_url=f"{url}/v1", api_key_var="SANDBOX_TEST_KEY")
        yield Agent(AgentConfig(model="m", client=client, runtime=SubprocessConfig()))


def _contents(trace: Trace[Any]) -> str:
    return " ".join(str(getattr(node.message, "content", "")) for node in trace.nodes)


async def test_the_bash_harness_runs_in_a_lent_sandbox_with_a_tool_server_on_the_host(
    runtime: ConfinedRuntime, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOOLS))
    trace = await agent.run(LookupTask(TaskData(idx=0, prompt="go"), TaskConfig()), runtime=runtime)
    assert trace.ok, trace.errors
    assert await runtime.read("answer.txt") == b"from the agent\n"
    assert "1000" in _contents(trace)
    assert trace.agent.runtime is not None
    assert trace.agent.runtime.borrowed
    assert Trace.model_validate_json(trace.model_dump_json()).agent.runtime == trace.agent.runtime
    assert "server as uid" in _contents(trace)
    assert "server as uid 1000 in /app" not in _contents(trace)


async def test_a_colocated_tool_server_runs_inside_when_it_may_see_python(agent: Agent) -> None:
    task = ColocatedTask(TaskData(idx=0, prompt="go"), TaskConfig())
    async with provision_confined(LocalSandboxConfig(python_env=True), [Bind(TOOLS, "/tools")], env={}) as box:
        monkey_env = {"PYTHONPATH": "/tools"}
        assert isinstance(box, ConfinedRuntime)
        task.runtime_env = lambda: monkey_env  # type: ignore[method-assign]
        trace = await agent.run(task, runtime=box)
    assert trace.ok, trace.errors
    assert "server as uid 1000 in /app" in _contents(trace)


async def test_a_colocated_tool_server_without_python_says_what_to_set(runtime: ConfinedRuntime, agent: Agent) -> None:
    trace = await agent.run(ColocatedTask(TaskData(idx=0, prompt="go"), TaskConfig()), runtime=runtime)
    assert not trace.ok
    assert trace.errors[-1].type == SandboxError.__name__
    assert "--env.sandbox.python_env true" in trace.errors[-1].message
