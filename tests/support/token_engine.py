"""An engine with vLLM's token-in, token-out protocol that says what it is told, in other tokens than a tokenizer's."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.families import FRAMES, MARKS, Family, loaded_tokenizer
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.served_app import served

_MARK = re.compile("(" + "|".join(map(re.escape, [*FRAMES, *MARKS])) + ")")

Choice = dict[str, Any]


@dataclass(frozen=True)
class Says:
    """One answer of the engine."""

    text: str = ""
    """Everything that is sampled, but for the token with which it stops."""
    spelled: str = ""
    """What is sampled behind it, marks too in ordinary tokens."""
    stops: bool = True
    """Whether that token is sampled; else the answer is cut off at its length."""
    spoil: Callable[[Choice], None] | None = None
    """What is wrong with the answer as it is sent."""
    refuses: str = ""
    """Answered with `status` and this message instead."""
    status: int = 400
    breaks: bool = False
    """Whether the connection is closed in the middle of it."""
    held: bool = False
    """Whether it never comes."""


@dataclass(frozen=True)
class Call:
    """What the engine saw and sampled in one call."""

    model: str
    prompt: list[int]
    completion: list[int]
    logprobs: list[float]

    @property
    def sequence(self) -> list[int]:
        """All of its tokens."""
        return [*self.prompt, *self.completion]


async def _break_off(request: web.Request) -> web.Response:
    """Close the connection behind the beginning of an answer."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"request_id": "request-')
    assert request.transport is not None
    request.transport.close()
    return web.Response()


Policy = Callable[[str, str], Says]
"""What to say, by the model that is asked and the text of the prompt."""


class TokenEngine:
    """Plays the models of a rollout.

    Args:
        tokenizer: directory of their tokenizer.
        family: how they write.
        policy: what they say.
        window: tokens that a prompt may have, as a model card says; None = none says anything.
        sub_family: how the sub model writes; None = as the main one.
        token_ids: whether logprobs name tokens by their ids, as vLLM 0.32 does.
    """

    def __init__(
        self,
        tokenizer: Path,
        family: Family,
        policy: Policy,
        window: int | None = None,
        sub_family: Family | None = None,
        token_ids: bool = False,
    ) -> None:
        self.tokenizer = loaded_tokenizer(tokenizer)
        self.calls: list[Call] = []
        """The calls that were answered as they should be."""
        self.asked = 0
        """How many calls came."""
        self._family = family
        self._sub_family = sub_family or family
        self._policy = policy
        self._window = window
        self._token_ids = token_ids

    def of(self, model: str) -> list[Call]:
        """The calls of one model."""
        return [call for call in self.calls if call.model == model]

    def text(self, ids: list[int]) -> str:
        """What tokens say."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def sample(self, text: str, seed: int, *, spelled: bool = False) -> list[int]:
        """Tokens that say a text, marks too where they are spelled; words are cut where a tokenizer would not."""
        ids: list[int] = []
        lengths = random.Random(seed)
        for part in [text] if spelled else _MARK.split(text):
            while part:
                length = len(part) if _MARK.fullmatch(part) and not spelled else lengths.choice((1, 1, 2, 3, 5))
                ids += self.tokenizer.encode(part[:length], add_special_tokens=False)
                part = part[length:]
        assert self.text(ids) == text
        return ids

    def logprobs(self, prompt: list[int], completion: list[int], sampling: dict[str, Any]) -> list[float]:
        """Of a completion: numbers that tell call and token."""
        return [-(self.asked + number / 1024) for number in range(len(completion))]

    async def generate(self, request: web.Request) -> web.Response:
        """One completion."""
        body = json.loads(await request.text())
        prompt, model = body["token_ids"], body["model"]
        assert body["sampling_params"]["logprobs"] == 1
        self.asked += 1
        says = self._policy(model, self.text(prompt))
        if says.refuses:
            return web.json_response({"error": {"message": says.refuses, "code": says.status}}, status=says.status)
        if says.held:
            await asyncio.Event().wait()
        family = self._sub_family if model == SUB_MODEL else self._family
        stop = family.stop(says.text) if says.stops else ""
        completion = self.sample(says.text, self.asked)
        completion += self.sample(says.spelled, self.asked, spelled=True) + self.sample(stop, self.asked)
        logprobs = self.logprobs(prompt, completion, body["sampling_params"])
        pairs = zip(completion, logprobs, strict=True)
        content = [
            {"token_id": token, "logprob": logprob, "top_logprobs": [{"token_id": token, "logprob": logprob}]}
            if self._token_ids
            else {"token": f"token_id:{token}", "logprob": logprob}
            for token, logprob in pairs
        ]
        reason = "stop" if says.stops else "length"
        choice = {"index": 0, "token_ids": completion, "logprobs": {"content": content}, "finish_reason": reason}
        if says.breaks:
            return await _break_off(request)
        if says.spoil is None:
            self.calls.append(Call(model, prompt, completion, logprobs))
        else:
            says.spoil(choice)
        return web.json_response({"request_id": f"request-{self.asked}", "choices": [choice]})

    async def models(self, request: web.Request) -> web.Response:
        """The model cards, if there is something to say."""
        names = (MAIN_MODEL, SUB_MODEL) if self._window else ()
        return web.json_response({"data": [{"id": name, "max_model_len": self._window} for name in names]})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The engine's base URL."""
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/inference/v1/generate", self.generate)
        app.router.add_get("/v1/models", self.models)
        async with served(app) as url:
            yield f"{url}/v1"
