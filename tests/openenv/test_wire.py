"""Real OpenEnv clients against our server over its real protocol: 0.4.1, 0.10, and ours."""

import asyncio
import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from opencode_openenv import OpenCodeEnvClient, RolloutResult
from opencode_openenv.spec import RolloutSpec

from tests.support.openenv_server import RunningServer, spoken_by
from tests.support.replies import bash, faulty
from tests.support.waiting import until, within_a_limit

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

GENERIC = Path(__file__).parent / "clients" / "generic.py"
POLICY = ScriptPolicy.of(bash("cp ../given made.txt"), Reply(text="done"))


def call_of(model: ScriptedModel) -> dict[str, Any]:
    """A call whose agent copies what setup made; one of two verify commands passes."""
    return {
        "base_url": model.base_url,
        "api_key": "a-callers-own-key",
        "model": "some-model",
        "task_id": "copies",
        "instruction": "copy it",
        "setup": ["echo seven > given"],
        "verify": ["grep seven workdir/made.txt", "false"],
    }


def require_whole(result: RolloutResult) -> None:
    """Check a result of `call_of`, field by field."""
    assert (result.reward, result.error, result.task_id) == (0.5, None, "copies")
    assert (result.agent_exit_code, result.mode, result.stop_condition) == (0, "transparent_proxy", "agent_completed")
    assert [command.exit_code for command in result.setup_results] == [0]
    verified = [(command.cmd, command.exit_code, command.stdout) for command in result.verify_results]
    assert verified == [("grep seven workdir/made.txt", 0, "seven\n"), ("false", 1, "")]
    assert result.files == {"/home/user/workdir/made.txt": "seven\n"}
    assert [turn.finish_reason for turn in result.proxy_turns] == ["tool_calls", "stop"]
    assert result.proxy_turns[1].completion_tokens == ["done"]
    assert all(len(turn.per_token_logps) == len(turn.completion_tokens) > 0 for turn in result.proxy_turns)
    assert result.sandbox_id
    assert result.wall_s > 0


@pytest.mark.parametrize("version", ["0.4.1", "0.10.0"])
async def test_openenvs_own_clients_run_rollouts(
    server: RunningServer, version: str, request: pytest.FixtureRequest
) -> None:
    python = sys.executable if version == "0.4.1" else request.getfixturevalue("newest_python")
    async with ScriptedModel(POLICY) as model:
        call = call_of(model)
        wrong = {**call, "mode": "no-such-mode"}
        said = await asyncio.to_thread(spoken_by, python, GENERIC, server.url, call, wrong)
        for recorded in model.requests:
            assert recorded.headers["authorization"] == "Bearer a-callers-own-key"
    ((name, description, schema),) = said["tools"]
    assert name == "run_rollout"
    assert description
    assert set(schema["properties"]) == set(RolloutSpec.model_fields)
    assert all(argument["description"] for argument in schema["properties"].values())
    require_whole(RolloutResult.model_validate(said["answer"]))
    require_whole(RolloutResult.model_validate(said["text"]))
    assert "mode" in said["refusal"]
    assert "a-callers-own-key" not in said["refusal"]
    assert said["state"]["episode_id"] == "episode-7"
    assert (said["state"]["rollouts_completed"], said["state"]["last_reward"]) == (1, 0.5)
    assert said["state"]["last_task_id"] == "copies"


async def test_our_client_runs_rollouts_in_async_code(server: RunningServer) -> None:
    async with ScriptedModel(POLICY) as model, OpenCodeEnvClient(server.url) as env:
        await env.reset()
        require_whole(await env.run_rollout(**call_of(model)))
        with pytest.raises(ValueError, match="template"):
            await env.run_rollout(**call_of(model), template="some-image")
        # A refused call leaves the session as it was.
        require_whole(await env.run_rollout(**call_of(model)))


async def test_a_call_that_our_client_gives_up_ends_its_rollout_and_the_client_goes_on(server: RunningServer) -> None:
    silent = ScriptedModel(ScriptPolicy.of(faulty("hang")))
    # One that has answered once: else the time limit below would be the endpoint's silence, and an error.
    stuck = ScriptedModel(ScriptPolicy.of(bash("true"), faulty("hang")))
    async with silent, stuck, ScriptedModel(POLICY) as model, OpenCodeEnvClient(server.url) as env:
        given_up = asyncio.ensure_future(env.run_rollout(**call_of(silent)))
        await until(lambda: silent.active == 1)
        assert len(server.home.sandboxes()) == 1
        given_up.cancel()
        await until(lambda: not server.home.sandboxes())
        require_whole(await env.run_rollout(**call_of(model)))
        # Of the server's own time limit an error in the result is heard, and not one of the client.
        late = await within_a_limit(
            lambda seconds: env.run_rollout(**{**call_of(stuck), "agent_timeout_s": seconds, "verify": ["true"]}),
            lambda late: late.reward is not None,
        )
        assert (late.reward, late.stop_condition) == (1.0, "agent_timeout")


async def test_our_client_runs_rollouts_in_sync_code(server: RunningServer) -> None:
    def speak(call: dict[str, Any]) -> list[RolloutResult]:
        results = []
        with OpenCodeEnvClient(server.url) as env:
            env.reset()
            results.append(env.run_rollout(**call))
        with OpenCodeEnvClient(server.url).sync() as env:
            results.append(env.run_rollout(**call))
        return results

    async with ScriptedModel(POLICY) as model:
        for result in await asyncio.to_thread(speak, call_of(model)):
            require_whole(result)


async def test_a_call_by_plain_http_and_by_mcp_runs_a_rollout_too(server: RunningServer) -> None:
    def asked(path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=240) as answer:
            return json.load(answer)

    async with ScriptedModel(POLICY) as model:
        call = call_of(model)
        action = {"type": "call_tool", "tool_name": "run_rollout", "arguments": call}
        step = await asyncio.to_thread(asked, "/step", {"action": action})
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_rollout", "arguments": call}}
        mcp = await asyncio.to_thread(asked, "/mcp", rpc)
    require_whole(RolloutResult.model_validate_json(step["observation"]["result"]["content"][0]["text"]))
    require_whole(RolloutResult.model_validate_json(mcp["result"]["content"][0]["text"]))
    assert asked("/health")["status"] == "healthy"
    assert "tool_name" in asked("/schema")["action"]["properties"]


async def test_an_agent_cannot_reach_the_server_that_runs_it(server: RunningServer) -> None:
    port = server.url.rpartition(":")[2]
    knock = f"bash -c 'echo > /dev/tcp/127.0.0.1/{port}' 2>/dev/null && echo reached || echo not reached"
    policy = ScriptPolicy.of(bash(f"({knock}) > told"), Reply(text="done"))
    async with ScriptedModel(policy) as model, OpenCodeEnvClient(server.url) as env:
        result = await env.run_rollout(**{**call_of(model), "setup": [knock], "verify": [knock]})
    assert result.files == {"/home/user/workdir/told": "not reached\n"}
    assert result.setup_results[0].stdout == result.verify_results[0].stdout == "not reached\n"
