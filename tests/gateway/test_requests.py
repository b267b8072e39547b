"""What of a request goes upstream: what the agent's harness sends and its user configured, and nothing else."""

import json
from typing import Any

import pytest
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent import interception_servers
from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.scripted_model import Reply
from verifiers.v1.harnesses.claude_code import ClaudeCodeHarnessConfig
from verifiers.v1.harnesses.codex import CodexHarnessConfig
from verifiers.v1.harnesses.hermes_agent import HermesAgentHarnessConfig
from verifiers.v1.interception import InterceptionServerConfig

from tests.rlm.role_server import SUB, Rollout, role_server
from tests.support.broken_wire import broken_wire
from tests.support.places import Confined
from tests.support.replies import bash
from tests.support.rollouts import play

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
ADDED: dict[str, Any] = {
    "plugins": [{"id": "web"}],
    "web_search_options": {},
    "models": ["expensive/model"],
    "route": "fallback",
    "provider": {"order": ["mine"]},
    "transforms": ["middle-out"],
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"enable_thinking": False},
    "priority": -100,
    "service_tier": "priority",
    "best_of": 50,
    "use_beam_search": True,
    "logits_processors": ["os.system"],
    "guided_grammar": "root ::= (a)*",
    "logprobs": True,
    "top_logprobs": 20,
    "prompt_logprobs": 20,
    "top_k": 1,
    "min_p": 0.9,
    "repetition_penalty": 2,
    "min_tokens": 100_000,
    "ignore_eos": True,
    "background": True,
    "metadata": {"user": "someone"},
    "n": 1,
    "cache_salt": "x",
    "kv_transfer_params": {"remote_host": "127.0.0.1"},
    "extra_body": {"n": 100},
    "modalities": ["audio"],
    "audio": {"voice": "alloy"},
}


@pytest.mark.parametrize("headers", [{}, SUB])
async def test_what_an_agents_program_adds_does_not_go_upstream(rollout: Rollout, headers: dict[str, str]) -> None:
    remote = [{"type": "web_search"}, {"type": "mcp", "server_url": "http://127.0.0.1:1/"}]
    function = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    body = {**ASKED, **ADDED, "tools": [*remote, function], "max_tokens": 50}
    body["messages"] = [{"role": "user", "content": "hello", "images": ["http://127.0.0.1/x.png"], "prefix": True}]
    assert (await rollout.post(json.dumps(body), headers)).status == 200
    sent = rollout.model.requests[0].body
    seat = {"model": "sub-0", "temperature": 0.9} if headers else {"model": "main-0", "temperature": 0.5}
    assert sent == {**seat, "messages": ASKED["messages"], "tools": [function], "max_tokens": 50}
    assert sum(rollout.main.info["gateway"]["dropped"].values()) == len(ADDED) + 4


async def test_without_the_filter_all_of_it_goes_upstream() -> None:
    async with role_server(gateway=GatewayConfig(filter_requests=False)) as server, server.rollout() as rollout:
        assert (await rollout.post(json.dumps({**ASKED, **ADDED}))).status == 200
        assert server.model.requests[0].body.keys() > ADDED.keys()


PARTS: dict[str, Any] = {
    "an address": {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/secret"}},
    "an address in capitals": {"type": "image_url", "image_url": {"url": " HTTPS://example.com/x"}},
    "a bare address": {"type": "image_url", "image_url": "http://127.0.0.1:9/secret"},
    "a file of the host": {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
    "no kind": {"image_url": {"url": "http://127.0.0.1:9/secret"}},
    "a video": {"type": "video_url", "video_url": {"url": "http://127.0.0.1:9/secret"}},
    "a sound": {"type": "audio_url", "audio_url": {"url": "http://127.0.0.1:9/secret"}},
    "a file at an address": {"type": "file", "file": {"file_data": "http://127.0.0.1:9/secret"}},
    "a file of the account": {"type": "file", "file": {"file_id": "file-1"}},
    "an input file": {"type": "input_file", "file_url": "http://127.0.0.1:9/secret"},
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("role", ["user", "tool", "system"])
async def test_nothing_that_the_endpoint_would_fetch_goes_upstream(rollout: Rollout, part: Any, role: str) -> None:
    message = {"role": role, "tool_call_id": "x", "content": [{"type": "text", "text": "look"}, part]}
    answer = await rollout.post(json.dumps({"messages": [message]}))
    assert answer.status == 400
    assert "messages[0].content[1]" in answer.text
    assert (rollout.model.requests, rollout.main.calls) == ([], [])


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/embeddings"])
async def test_only_the_wire_format_of_the_agent_is_served(rollout: Rollout, path: str) -> None:
    body = json.dumps({**ASKED, "input": "hello", "background": True, "tools": [{"type": "mcp"}]})
    assert (await rollout.post(body, path=path)).status == 404
    assert (rollout.main.calls, rollout.session.error) == ([], None)


@pytest.mark.parametrize(
    ("harness", "served"),
    [
        (CodexHarnessConfig(id="codex"), "/v1/responses"),
        (ClaudeCodeHarnessConfig(id="claude-code"), "/v1/messages"),
        (OpenCodeHarnessConfig(id="opencode-env"), "/v1/chat/completions"),
    ],
)
async def test_each_harness_has_its_own_wire_format(harness: Any, served: str) -> None:
    async with role_server() as server, server.rollout(harness=harness) as rollout:
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            answer = await rollout.post(json.dumps({**ASKED, "input": "hello"}), path=path)
            # The scripted model speaks chat completions only; what it does not know was passed on.
            assert ("is not served here" in answer.body) == (path != served)


async def test_an_unknown_harness_has_the_wire_format_of_its_first_call() -> None:
    unknown = HermesAgentHarnessConfig(id="hermes-agent")
    async with role_server() as server, server.rollout(harness=unknown) as rollout:
        assert (await rollout.post(json.dumps(ASKED))).status == 200
        assert (await rollout.post(json.dumps({"input": "x"}), path="/v1/responses")).status == 404


NOSY = {
    "OpenAI-Organization": "org-1",
    "OpenAI-Project": "p",
    "X-Portkey-Config": "{}",
    "Helicone-Auth": "x",
    "Cookie": "a=b",
    "X-Forwarded-For": "1.2.3.4",
    "X-Session-ID": "another",
    "User-Agent": "mine",
    "anthropic-beta": "mcp-client-2025-04-04",
    "x-stainless-retry-count": "not a number",
}


async def test_no_header_of_an_agents_program_goes_upstream(rollout: Rollout) -> None:
    assert (await rollout.ask("hello", {**NOSY, "Accept": "text/plain"})).status == 200
    headers = rollout.model.requests[0].headers
    assert (headers["accept"], headers["x-session-id"]) == ("text/plain", rollout.main.id)
    assert headers["user-agent"] != "mine"
    ours = {"host", "accept", "accept-encoding", "connection", "authorization", "content-type", "content-length"}
    assert headers.keys() <= ours | {"user-agent", "x-session-id"}


async def test_the_gate_of_another_harness_is_no_way_to_an_error(rollout: Rollout) -> None:
    for body in ("[]", '{"tool_call_id": "x"}', "{"):
        assert (await rollout.post(body, path="/tool")).status == 404
    assert rollout.session.error is None


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.opencode
async def test_opencodes_own_requests_and_what_the_user_configured_go_upstream_and_a_program_cannot_change_it() -> None:
    model: dict[str, Any] = {"temperature": True, "headers": {"X-Mine": "yes"}}
    model |= {"options": {"chat_template_kwargs": {"enable_thinking": False}, "top_k": 20}}
    config = {
        "provider": {"intercepted": {"models": {"org/some-model:v1": model}, "options": {"headers": {"X-Also": "so"}}}},
        "agent": {"build": {"temperature": 0.3, "options": {"provider": {"order": ["a"]}}, "seed_of_mine": 5}},
    }
    served = interception_servers.role_server(InterceptionServerConfig())
    async with served as interception, broken_wire(interception.base_url, []) as wire:
        interception.base_url = wire.url
        script = [bash("echo hi"), Reply(text="done")]
        played = await play(Confined(), script, interception=interception, harness={"opencode_config": config})
    assert played.trace.ok, played.trace.errors
    asked, bodies = [json.loads(body) for body in wire.asked], [request.body for request in played.requests]
    assert asked[0] == bodies[0]
    # The model's answer stands in the second as it was said, and not as OpenCode repeats it.
    assert [sorted(body) for body in asked] == [sorted(body) for body in bodies]
    for body in bodies:
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
        assert (body["top_k"], body["temperature"], body["seed_of_mine"]) == (20, 0.3, 5)
        assert body["provider"] == {"order": ["a"]}
    assert (played.requests[0].headers["x-mine"], played.requests[0].headers["x-also"]) == ("yes", "so")
    assert "gateway" not in played.trace.info
    harness = OpenCodeHarnessConfig(id="opencode-env", opencode_config=config)
    changed = {**ASKED, "chat_template_kwargs": {"enable_thinking": True}, "top_k": 1, "provider": {"order": ["b"]}}
    async with role_server() as server, server.rollout(harness=harness) as rollout:
        assert (await rollout.post(json.dumps(changed), {"X-Mine": "no"})).status == 200
        request = server.model.requests[0]
        assert request.body.keys() == {"model", "messages", "temperature"}
        assert "x-mine" not in request.headers


async def test_model_and_sampling_of_the_seat_stand(rollout: Rollout) -> None:
    assert (await rollout.post(json.dumps({**ASKED, "temperature": 2, "model": "other"}))).status == 200
    sent = rollout.model.requests[0].body
    assert (sent["model"], sent["temperature"]) == ("main-0", 0.5)
    assert (await rollout.post(json.dumps({**ASKED, "n": 5}))).status == 400
