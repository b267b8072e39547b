"""What is known of a model's window, and the limit of an answer: of a size and a name that the endpoint takes."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from aiohttp import web
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent.classification import overflowed, recovered
from opencode_env.cli_agent.interception.window import listed_window

from tests.rlm.role_server import Answer, Rollout, role_server
from tests.support.families import Qwen3
from tests.support.served_app import served
from tests.support.token_engine import Says, TokenEngine
from tests.training.trained import train_client

Json = dict[str, Any]
WINDOW = 32_768
TOO_LARGE = (
    "'max_tokens' or 'max_completion_tokens' is too large: {limit}. This model's maximum context length is {window} "
    "tokens and your request has {prompt} input tokens ({limit} > {window} - {prompt})."
)
"""vLLM 0.29's words."""
OTHER_NAME = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)


@dataclass
class Engine:
    """An endpoint that is strict about the limit of an answer: a token is so many bytes of its messages."""

    window: int = WINDOW
    bytes_of_token: int = 4
    name: str = "max_tokens"
    models: Any = None
    """Its list of models; by default vLLM's."""
    path: str = "/v1/models"
    asked: list[Json] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)

    def refusal(self, body: Json) -> str:
        if self.name == "max_completion_tokens" and "max_tokens" in body:
            return OTHER_NAME
        prompt = len(json.dumps(body["messages"])) // self.bytes_of_token
        limit = body.get(self.name, 0)
        if prompt + limit > self.window:
            return TOO_LARGE.format(limit=limit, window=self.window, prompt=prompt)
        return ""

    async def chat(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text())
        self.asked.append(body)
        self.queries.append(request.query_string)
        if refused := self.refusal(body):
            return web.json_response({"error": {"message": refused, "code": 400}}, status=400)
        prompt = len(json.dumps(body["messages"])) // self.bytes_of_token
        usage = {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}
        choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
        head = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        return web.json_response({**head, "choices": [choice], "usage": usage})

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response(self.models or {"data": [{"id": "main-0", "max_model_len": self.window}]})

    @asynccontextmanager
    async def rollout(self, query: str = "", **harness: Any) -> AsyncIterator[Rollout]:
        """A rollout whose endpoint it is."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get(self.path, self.list_models)
        async with served(app) as url:
            client = vf.EvalClientConfig(base_url=f"{url}/v1{query}", api_key_var="NO_SUCH_KEY")
            config = OpenCodeHarnessConfig(id="opencode-env", **harness)
            async with role_server(client=client) as server, server.rollout(harness=config) as rollout:
                yield rollout


async def ask(rollout: Rollout, prompt: str, limit: int | None = 32_000, **more: Any) -> Answer:
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], **more}
    return await rollout.post(json.dumps(body | ({} if limit is None else {"max_tokens": limit})))


@pytest.mark.parametrize("option", ["auto", WINDOW])
async def test_in_a_known_window_each_answers_limit_fits_behind_its_prompt(
    option: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    async with engine.rollout(context_window=option) as rollout:
        for words in (10, 5_000, 10_000, 20_000):
            assert (await ask(rollout, "word " * words)).status == 200
        assert [call.error for call in rollout.main.calls] == [None] * 4
        sent = [call.sampling.max_tokens for call in rollout.main.calls if call.sampling is not None]
    limits = [body["max_tokens"] for body in engine.asked]
    assert sent == limits
    assert limits == sorted(limits, reverse=True)
    assert limits[0] == 32_000
    assert limits[-1] >= WINDOW // 16
    # The third prompt's estimate leaves more than a small answer, and the fourth's does not.
    [told] = [record for record in caplog.records if record.levelname == "WARNING" and "window" in record.message]
    assert re.search(
        r"the window of main-0, 32768 tokens, has room for \d+ of an answer behind a prompt of", told.message
    )
    assert "--env.agent.harness.context-window" in told.message
    assert told.__dict__["of_the_run"]


async def test_without_the_option_nothing_is_changed_and_a_limit_that_fits_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Engine()
    async with engine.rollout() as rollout:
        assert (await ask(rollout, "word " * 5_000)).status == 400
    async with Engine().rollout(context_window="auto") as rollout:
        assert (await ask(rollout, "short", 100)).status == 200
        assert "has room for" not in caplog.text
        assert (await ask(rollout, "short too", None)).status == 200
    assert [body["max_tokens"] for body in engine.asked] == [32_000]


async def test_what_the_endpoint_says_of_the_prompts_length_corrects_an_estimate_once() -> None:
    engine = Engine(bytes_of_token=1)  # a tokenizer that makes a token of each digit
    async with engine.rollout(context_window=WINDOW) as rollout:
        assert (await ask(rollout, "7" * 20_000)).status == 200
        assert rollout.main.num_turns == 1
        refused = await ask(rollout, "7" * 40_000)
    assert refused.status == 400
    assert "maximum context length" in refused.text
    prompt = len(json.dumps(engine.asked[0]["messages"]))
    first, corrected = (body["max_tokens"] for body in engine.asked[:2])
    assert corrected == WINDOW - prompt < first


async def test_a_prompt_that_cannot_fit_is_refused_without_asking_the_endpoint() -> None:
    engine = Engine()
    async with engine.rollout(context_window=WINDOW) as rollout:
        assert (await ask(rollout, "word " * 5_000)).status == 200
        refused = await ask(rollout, "word " * 200_000)
        assert (await ask(rollout, "word " * 6_000)).status == 200
        assert [overflowed([call]) for call in rollout.main.calls] == [False, True, False]
        assert recovered(rollout.main.calls) == [False, True, False]
        assert recovered(rollout.main.calls[:2]) == [False, False]
    assert refused.status == 400
    assert "maximum context length" in refused.text
    assert len(engine.asked) == 2


async def test_a_shorter_prompt_is_not_counted_as_the_one_before() -> None:
    engine = Engine(window=2 * WINDOW)  # than the one that is named
    async with engine.rollout(context_window=WINDOW) as rollout:
        for words in (30_000, 100):
            assert (await ask(rollout, "word " * words, 5)).status == 200
        assert (await ask(rollout, "word " * 200_000, 5)).status == 400
    assert len(engine.asked) == 2


async def test_an_endpoint_that_wants_the_other_name_for_the_limit_gets_it() -> None:
    engine = Engine(name="max_completion_tokens")
    async with engine.rollout() as rollout:
        for prompt in ("first", "second"):
            assert (await ask(rollout, prompt, 500)).status == 200
        assert [call.error for call in rollout.main.calls] == [None, None]
    names = [sorted({"max_tokens", "max_completion_tokens"} & body.keys()) for body in engine.asked]
    assert names == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


async def test_name_and_size_can_both_be_wrong_and_a_limit_of_the_model_is_not_a_name() -> None:
    engine = Engine(name="max_completion_tokens", bytes_of_token=1)
    async with engine.rollout(context_window="auto") as rollout:
        assert (await ask(rollout, "7" * 20_000)).status == 200
    assert len(engine.asked) == 3

    class Small(Engine):
        def refusal(self, body: Json) -> str:
            return "max_tokens or max_completion_tokens is too large: 32000. This model supports at most 16384 tokens"

    small = Small()
    async with small.rollout() as rollout:
        assert (await ask(rollout, "x")).status == 400
    assert len(small.asked) == 1


@pytest.mark.parametrize("query", ["?api-version=2024-10-21", "?a=1&b=2"])
async def test_a_base_url_keeps_its_query(query: str) -> None:
    engine = Engine()
    async with engine.rollout(query) as rollout:
        assert (await ask(rollout, "x", 5)).status == 200
    assert engine.queries == [query[1:]]


LISTS: Mapping[str, tuple[str, Any, int | None]] = {
    "vLLM": ("/v1/models", {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 4096}]}, 4096),
    "llama.cpp": ("/v1/models", {"data": [{"id": "a.gguf", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}}]}, 8192),
    "llama.cpp, earlier": ("/v1/models", {"data": [{"id": "a.gguf", "meta": {"n_ctx_train": 131072}}]}, 131072),
    "OpenRouter": ("/v1/models", {"data": [{"id": "m", "context_length": 65536}, {"id": "n"}]}, 65536),
    "Groq": ("/v1/models", {"data": [{"id": "m", "context_window": 131072}, {"id": "n"}]}, 131072),
    "Mistral": ("/v1/models", {"data": [{"id": "m", "max_context_length": 32768}]}, 32768),
    "Together": ("/v1/models", [{"id": "m", "context_length": 32768}], 32768),
    "LM Studio": (
        "/api/v0/models",
        {"data": [{"id": "m", "max_context_length": 32768, "loaded_context_length": 4096}]},
        4096,
    ),
    "OpenAI": ("/v1/models", {"data": [{"id": "m", "object": "model"}]}, None),
    "nonsense": ("/v1/models", "a page", None),
    "no list": ("/elsewhere", {}, None),
}


@pytest.mark.parametrize("kind", LISTS)
async def test_each_kind_of_list_of_models_is_read(kind: str) -> None:
    path, models, window = LISTS[kind]
    app = web.Application()

    async def listed(request: web.Request) -> web.Response:
        return web.json_response(models)

    app.router.add_get(path, listed)
    async with served(app) as url:
        assert await listed_window(vf.EvalClientConfig(base_url=f"{url}/v1"), "m") == window


class StrictTokens(TokenEngine):
    """Refuses a prompt and an answer that do not fit together, as vLLM 0.29 does."""

    limits: Sequence[int] = ()

    async def generate(self, request: web.Request) -> web.Response:
        body = json.loads(await request.text())
        prompt, limit = len(body["token_ids"]), body["sampling_params"].get("max_tokens", 0)
        self.limits = [*self.limits, limit]
        if prompt + limit > WINDOW:
            told = TOO_LARGE.format(limit=limit, window=WINDOW, prompt=prompt)
            return web.json_response({"error": {"message": told, "code": 400}}, status=400)
        return await super().generate(request)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "main-0", "max_model_len": WINDOW}]})


async def test_a_training_clients_limit_fits_too(tokenizer: Path) -> None:
    family = Qwen3(thinks=False)
    engine = StrictTokens(tokenizer, family, lambda model, prompt: Says(family.answer("yes")))
    async with engine.serving() as url:
        client = train_client(url, family, tokenizer)
        for option, status in ((None, 400), ("auto", 200)):
            config = OpenCodeHarnessConfig.model_validate({"id": "opencode-env", "context_window": option})
            async with role_server(client=client) as server, server.rollout(harness=config) as rollout:
                rollout.session.ctx.sampling.max_tokens = 32_000
                assert (await ask(rollout, "word " * 5_000)).status == status
    assert engine.limits[0] == 32_000
    assert WINDOW // 16 <= engine.limits[-1] < WINDOW - 5_000
