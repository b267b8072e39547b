"""Under a training client sub calls carry token ids and logprobs, as main calls do, each on its own trace."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from renderers import DefaultRendererConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from verifiers.v1.clients import TrainClientConfig

from tests.rlm.role_server import SUB, role_server
from tests.support.families import TEMPLATE, loaded_tokenizer
from tests.support.served_app import served

END = "<|im_end|>"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of single bytes with a chat template, made on the spot."""
    vocabulary = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    special = ["<|im_start|>", END]
    vocabulary |= {name: len(vocabulary) + number for number, name in enumerate(special)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    from transformers import PreTrainedTokenizerFast

    kind: Any = PreTrainedTokenizerFast  # its constructor is untyped
    fast = kind(tokenizer_object=made, eos_token=END, additional_special_tokens=special)
    fast.chat_template = TEMPLATE
    directory = tmp_path_factory.mktemp("tokenizer")
    fast.save_pretrained(directory)
    return directory


class Engine:
    """What a vLLM engine answers at `/inference/v1/generate`: the prompt's last letters, with logprobs."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.sequences: list[list[int]] = []
        """Prompt and completion of every call."""

    async def generate(self, request: web.Request) -> web.Response:
        """One completion."""
        body = json.loads(await request.text())
        completion = [*body["token_ids"][-5:-3], self.end]
        self.sequences.append([*body["token_ids"], *completion])
        logprobs = {"content": [{"token": f"token_id:{token}", "logprob": -0.5} for token in completion]}
        choice = {"index": 0, "token_ids": completion, "logprobs": logprobs, "finish_reason": "stop"}
        return web.json_response({"request_id": "r", "choices": [choice]})

    async def models(self, request: web.Request) -> web.Response:
        """No model card: the window is not known."""
        return web.json_response({"data": []})


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[str]:
    """The engine's base URL."""
    app = web.Application()
    app.router.add_post("/inference/v1/generate", engine.generate)
    app.router.add_get("/v1/models", engine.models)
    async with served(app) as url:
        yield f"{url}/v1"


async def test_sub_branches_hold_exactly_the_tokens_that_the_engine_saw(tokenizer: Path) -> None:
    loaded = loaded_tokenizer(tokenizer)
    engine = Engine(loaded.convert_tokens_to_ids(END))
    async with running(engine) as url:
        renderer: Any = {"renderer": DefaultRendererConfig(), "renderer_model_name": str(tokenizer)}
        client = TrainClientConfig(base_url=url, api_key_var="NO_SUCH_KEY", **renderer)
        async with role_server(client=client) as server, server.rollout() as rollout:
            assert (await rollout.ask("main question")).status == 200
            for prompt in ("first", "second"):
                answer = await rollout.ask(prompt, SUB, stream=True)
                assert (answer.status, "[DONE]" in answer.body) == (200, True)
    assert (rollout.main.num_branches, rollout.sub.num_branches) == (1, 2)
    branches = [*rollout.main.branches, *rollout.sub.branches]
    assert [list(branch.token_ids) for branch in branches] == engine.sequences
    for branch in branches:
        assert sum(branch.sampled_mask) == 3
        assert [value for value, own in zip(branch.logprobs, branch.sampled_mask, strict=True) if own] == [-0.5] * 3
    assert [rollout.main.metrics[f"{seat}_completion_tokens"] for seat in ("main", "sub_llm")] == [3, 6]
