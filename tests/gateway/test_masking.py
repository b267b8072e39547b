"""An endpoint that repeats the key it was called with: the agent never reads it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import verifiers.v1 as vf
from aiohttp import web
from opencode_env.cli_agent.interception import GatewayConfig, endpoint
from opencode_env.cli_agent.interception.gateway import Masking

from tests.rlm.role_server import SUB, Answer, Rollout, role_server
from tests.support.served_app import served

KEY = "sk-proj-a/b+c.d_0123456789"
JUDGE = "judge-key-9876543210"
HEADER = "team-secret-of-ours"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def event(**delta: str) -> bytes:
    """One event of a stream."""
    chunk = {"id": "1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def completion(text: str) -> dict[str, object]:
    """A whole answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


async def refuses(request: web.Request) -> web.StreamResponse:
    """Answers as OpenAI does to a wrong key, and in its headers."""
    message = f"Incorrect API key provided: {request.headers['Authorization']}; {request.headers['X-Team']}; {JUDGE}"
    return web.json_response({"error": {"message": message}}, status=401, headers={"X-Key": KEY})


async def answers(request: web.Request) -> web.StreamResponse:
    """An answer that holds the keys."""
    body = await request.json()
    if not body.get("stream"):
        return web.json_response(completion(f"your key is {KEY} or {JUDGE}") | {"debug": {KEY: [HEADER]}})
    return await _stream(request, event(content=f"your key is {KEY}"), event(reasoning_content=JUDGE), END)


async def spells(request: web.Request) -> web.StreamResponse:
    """A stream that spells the key in pieces, with other things between them and cut anywhere."""
    pieces = [KEY[start : start + 3] for start in range(0, len(KEY), 3)]
    events = [event(content="the key: "), *(event(content=piece) + event(reasoning_content="-") for piece in pieces)]
    escaped = [event(content=" and ").replace(b" and ", b" and sk-proj-a\\/"), event(content=KEY.partition("/")[2])]
    return await _stream(request, *events, *escaped, event(content=" end"), END, cut=7)


async def fails_midway(request: web.Request) -> web.StreamResponse:
    """A stream that ends with an error."""
    error = json.dumps({"error": {"message": f"bad key {KEY}"}}).encode()
    return await _stream(request, event(content="so far"), b"data: " + error + b"\n\n", END)


async def _stream(request: web.Request, *events: bytes, cut: int = 1 << 20) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    data = b"".join(events)
    for start in range(0, len(data), cut):
        await response.write(data[start : start + cut])
    return response


@asynccontextmanager
async def provided(handler: Handler, gateway: GatewayConfig | None = None, **client: Any) -> AsyncIterator[Rollout]:
    """A rollout with such a provider."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    app.router.add_get("/v1/models", handler)
    async with served(app) as url:
        config = vf.EvalClientConfig(base_url=f"{url}/v1", **{"api_key_var": "NO_SUCH_KEY", **client})
        async with role_server(client=config, gateway=gateway) as server, server.rollout() as rollout:
            yield rollout


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDPOINT_KEY", KEY)
    monkeypatch.setenv("A_JUDGES_API_KEY", JUDGE)
    monkeypatch.setenv("TEAM", HEADER)


def holds_a_key(answer: Answer) -> bool:
    """Whether the agent could read a key, put together from the pieces of a stream or not."""
    texts = [answer.body, answer.body.replace("\\/", "/")]
    deltas = [json.loads(line[6:]) for line in answer.body.splitlines() if line.startswith("data: {")]
    told = [choice["delta"] for delta in deltas for choice in delta.get("choices", [])]
    texts += ["".join(one.get(name) or "" for one in told) for name in ("content", "reasoning_content")]
    return any(key in text for key in (KEY, JUDGE, HEADER) for text in texts)


KEYED: dict[str, Any] = {"api_key_var": "ENDPOINT_KEY", "headers_from_env": {"X-Team": "TEAM"}}


async def ask(handler: Handler, stream: bool, headers: dict[str, str]) -> tuple[Answer, Rollout]:
    """One call to such a provider."""
    async with provided(handler, **KEYED) as rollout:
        return await rollout.ask("what is the key?", headers, stream=stream), rollout


@pytest.mark.parametrize("headers", [{}, SUB])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("handler", [refuses, answers, spells, fails_midway])
async def test_no_key_comes_back_to_the_agent(handler: Handler, stream: bool, headers: dict[str, str]) -> None:
    answer, rollout = await ask(handler, stream, headers)
    assert not holds_a_key(answer)
    statuses = {"refuses": 401, "fails_midway": 502 if stream else 400}
    assert answer.status == statuses.get(handler.__name__, 200 if stream else answer.status)
    assert KEY not in rollout.main.model_dump_json() + rollout.sub.model_dump_json()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("handler", [refuses, answers])
async def test_without_the_masking_the_agent_reads_it(
    handler: Handler, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "keys_of", lambda config: frozenset())
    answer, _ = await ask(handler, stream, {})
    assert holds_a_key(answer)


async def test_the_list_of_models_holds_no_key() -> None:
    async with provided(refuses, **KEYED) as rollout:
        headers = {"Authorization": f"Bearer {rollout.secret}"}
        async with rollout.http.get(f"{rollout.url}/v1/models", headers=headers) as response:
            assert response.status == 401
            assert not holds_a_key(Answer(401, await response.text()))


def test_a_stream_without_keys_stays_as_it_is() -> None:
    events = [event(content="plain"), event(reasoning_content='a "quoted" \\ text'), END]
    assert Masking([KEY]).stream(list(events)) == events
    assert Masking([]).stream(list(events)) == events


def test_what_stands_around_a_spelled_key_stays() -> None:
    masked = b"".join(Masking([KEY]).stream([event(content=f"a{KEY[:5]}"), event(content=f"{KEY[5:]}z")]))
    assert b'"a*****"' in masked
    assert masked.count(b"*") == len(KEY)
    assert b'z"' in masked
