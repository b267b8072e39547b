"""Stands between us and a real engine: records both, and makes a weak model act by narrowing what it may say."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.served_app import served
from tests.support.token_engine import Call

GENERATE = "/inference/v1/generate"
CHAT = "/v1/chat/completions"
_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "host", "date", "server"}
_SPECIAL = re.compile(r"([\\.\[\]{}()*+?^$|])")
_ANSWERS = "<|im_start|>assistant\n"
Json = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """One request, and the engine's answer as it came."""

    path: str
    body: Json
    status: int
    content_type: str
    pieces: Sequence[bytes]

    @property
    def text(self) -> str:
        return b"".join(self.pieces).decode()

    @property
    def events(self) -> list[Json]:
        """Of a stream, without its end."""
        lines = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: {")]
        return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class Asked:
    """One model call, as what narrows it sees it."""

    model: str
    text: str
    """The conversation: the prompt's text, or its messages as JSON."""
    turn: int
    """How many answers it has already."""


Narrow = Callable[[Asked], str | None]
"""The regular expression of the answer; None leaves the model free."""


def literal(text: str) -> str:
    """A text within a regular expression."""
    return _SPECIAL.sub(r"\\\1", text)


def tool_call(name: str, **arguments: str) -> str:
    """The expression of a call in the form of Qwen3; each argument is the expression of a JSON value."""
    inner = ", ".join(f'"{key}": {value}' for key, value in arguments.items())
    return literal(f'<tool_call>\n{{"name": "{name}", "arguments": {{') + inner + literal("}}\n</tool_call>")


TEXT = "[A-Z][a-z ]{5,20}[.]"
"""A short answer."""


def bash(command: str = "echo [a-z]{3,9}", **more: str) -> str:
    """A call of `bash` whose command the model chooses within an expression."""
    return tool_call("bash", command=f'"{command}"', description='"d"', **more)


FULL = bash("printf %045000d [1-9]")
"""A call whose output fills the window."""


def spelled(expression: str) -> str:
    """The same, with its first mark in ordinary tokens."""
    return f"({expression})"


def lines(conversations: Mapping[str, Sequence[str]]) -> Narrow:
    """One expression for each turn of the conversations that hold a word; afterwards, and elsewhere, nothing."""

    def narrow(asked: Asked) -> str | None:
        said = next((said for word, said in conversations.items() if word in asked.text), ())
        return said[asked.turn] if asked.turn < len(said) else None

    return narrow


@dataclass
class Recorder:
    """Forwards to one engine.

    Args:
        engine: its base URL, with /v1.
        tokenizer: the model's, as transformers loads it.
        narrow: what the model may say.
    """

    engine: str
    tokenizer: Any
    narrow: Narrow = field(default=lambda asked: None)
    exchanges: list[Exchange] = field(default_factory=list)
    most_at_once: int = 0
    _now: int = 0

    @property
    def generated(self) -> list[Exchange]:
        """The answered calls of training clients."""
        return [one for one in self.exchanges if one.path == GENERATE and one.status == 200]

    @property
    def calls(self) -> list[Call]:
        """The same, as what the engine saw and sampled."""
        return [_call(one) for one in self.generated]

    @property
    def chats(self) -> list[Exchange]:
        """The answered calls of chat clients."""
        return [one for one in self.exchanges if one.path == CHAT and one.status == 200]

    def of(self, word: str) -> list[Exchange]:
        """What was said in chats that hold a word, refusals included."""
        return [one for one in self.exchanges if one.path == CHAT and word in json.dumps(one.body)]

    def _narrowed(self, path: str, body: Json) -> Json:
        if path == GENERATE:
            text = str(self.tokenizer.decode(body["token_ids"], skip_special_tokens=False))
            asked = Asked(body["model"], text, text.count(_ANSWERS) - 1)
            options = body["sampling_params"] = dict(body["sampling_params"])
        elif path == CHAT:
            answers = sum(message["role"] == "assistant" for message in body["messages"])
            asked, options = Asked(body["model"], json.dumps(body["messages"]), answers), body
        else:
            return body
        expression = self.narrow(asked)
        if expression is not None:
            options["structured_outputs"] = {"regex": expression}
            if "<tool_call>" in expression[:12]:
                # The marks themselves, and not their letters in other tokens, which only some readers take for them; or
                # these.
                spelled = expression[0] == "("
                marks = self.tokenizer.convert_tokens_to_ids(["<tool_call>", "</tool_call>"][: 1 if spelled else 2])
                options["logit_bias"] = {str(mark): -100.0 if spelled else 100.0 for mark in marks}
        return body

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        raw, path = await request.read(), request.path
        body: Json = json.loads(raw) if raw else {}
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        data = json.dumps(self._narrowed(path, body)) if raw else None
        url, pieces = self.engine.removesuffix("/v1") + path, list[bytes]()
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            timeout = aiohttp.ClientTimeout(total=600)
            async with (
                aiohttp.ClientSession(timeout=timeout) as client,
                client.request(request.method, url, headers=headers, data=data) as response,
            ):
                kept = {name: value for name, value in response.headers.items() if name.lower() not in _HOP}
                answer = web.StreamResponse(status=response.status, headers=kept)
                await answer.prepare(request)
                async for piece in response.content.iter_any():
                    pieces.append(piece)
                    await answer.write(piece)
                self.exchanges.append(Exchange(path, body, response.status, response.content_type, pieces))
                await answer.write_eof()
                return answer
        finally:
            self._now -= 1

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its own base URL, with /v1."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", self._forward)
        async with served(app) as url:
            yield f"{url}/v1"


def _call(exchange: Exchange) -> Call:
    (choice,) = json.loads(exchange.text)["choices"]
    content = choice["logprobs"]["content"]
    named = [int(one.get("token_id", str(one.get("token")).removeprefix("token_id:"))) for one in content]
    assert named == choice["token_ids"], "the engine names other tokens in its log-probabilities"
    return Call(
        exchange.body["model"], exchange.body["token_ids"], choice["token_ids"], [one["logprob"] for one in content]
    )
