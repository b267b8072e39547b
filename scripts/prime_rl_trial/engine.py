"""A policy behind vLLM's token-in, token-out protocol, and its tokenizer: single bytes, made on the spot.

What it says depends on the prompt alone, but for the last answer: every other one is wrong, so that a group of rollouts
has both.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = "<|im_end|>"
ASSISTANT = "<|im_start|>assistant"
FRAMES = ["<|im_start|>", END, "<|endoftext|>"]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ASKED_OF_SUB = "How many letters has the word tree?"
RIGHT, WRONG = "4", "5"
SUMMARY, SUMMARISE = "The word was counted.", "Create a new anchored summary from the conversation history"
FILL = 12_000
"""Bytes of a result that fills the window of a compacted conversation."""
LOGPROB = -0.25


def save_tokenizer(directory: Path) -> None:
    """A tokenizer of the Qwen3 family's form whose tokens are bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(FRAMES)
    made.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    kind: Any = PreTrainedTokenizerFast  # its constructor is untyped
    fast = kind(tokenizer_object=made, eos_token=END, additional_special_tokens=FRAMES)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)


def call(name: str, **arguments: str) -> str:
    """A tool call as the model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@dataclass
class Engine:
    """The engine of one trial."""

    directory: Path
    """Of the tokenizer; also the model's name."""
    sequences: list[list[int]] = field(default_factory=list)
    """Prompt and completion of every answered call."""
    ends: int = 0
    """Rollouts that came to their last answer."""
    hanging: int = 0
    """Calls that wait for an answer which does not come."""
    _tokenizer: Any = None

    @property
    def tokenizer(self) -> Any:
        """Loaded when it is first needed."""
        if self._tokenizer is None:
            self._tokenizer = PreTrainedTokenizerFast.from_pretrained(self.directory)
        return self._tokenizer

    def says(self, prompt: str) -> str:
        """The answer to a prompt."""
        if SUMMARISE in prompt:
            return SUMMARY
        turn = 2 if SUMMARY in prompt else prompt.count(ASSISTANT) - 1
        if "FILL" in prompt and turn < 2:
            return call("bash", command=f"head -c {FILL} /dev/zero | tr '\\0' x", description="fill")
        if ASKED_OF_SUB in prompt.rpartition("<|im_start|>user")[2] and '"llm_subcall"' not in prompt:
            return RIGHT
        if turn == 0 and '"llm_subcall"' in prompt:
            return call("llm_subcall", prompt=ASKED_OF_SUB)
        if turn == 0:
            return call("bash", command="printf tree | wc -c", description="count")
        self.ends += 1
        return RIGHT if self.ends % 2 else WRONG

    async def generate(self, request: web.Request) -> web.Response:
        """One completion."""
        body = json.loads(await request.text())
        prompt = self.tokenizer.decode(body["token_ids"], skip_special_tokens=False)
        if "REFUSE" in prompt:
            return web.json_response({"error": {"message": "not this one", "code": 401}}, status=401)
        if "HANG" in prompt:
            self.hanging += 1
            await asyncio.Event().wait()
        completion = self.tokenizer.encode(self.says(prompt) + END, add_special_tokens=False)
        self.sequences.append([*body["token_ids"], *completion])
        content = [{"token": f"token_id:{token}", "logprob": LOGPROB} for token in completion]
        choice = {"index": 0, "token_ids": completion, "logprobs": {"content": content}, "finish_reason": "stop"}
        return web.json_response({"request_id": f"request-{len(self.sequences)}", "choices": [choice]})

    async def models(self, request: web.Request) -> web.Response:
        """The model's card."""
        return web.json_response({"data": [{"id": str(self.directory), "max_model_len": 1 << 16}]})

    async def health(self, request: web.Request) -> web.Response:
        """It is well."""
        return web.Response()

    @asynccontextmanager
    async def serving(self, host: str) -> AsyncIterator[str]:
        """Its base URL at an address of this machine."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/inference/v1/generate", self.generate)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, 0).start()
            yield f"http://{host}:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()
