"""A real chat-completions endpoint that plays what a test puts into it, one step per request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from verifiers.v1.configs.client import BaseClientConfig

from tests.support.served_app import served


@dataclass
class Step:
    """One response."""

    text: str | None = "A"
    status: int = 200
    finish: str = "stop"
    refusal: str | None = None
    delay: float = 0.0
    raw: str | None = None
    """Sent as it is instead of a completion."""
    cut: bool = False
    """Whether the connection is closed in the place of an answer."""


@dataclass
class JudgeServer:
    """What came in, and what goes out next; the last step repeats."""

    steps: list[Step]
    requests: list[dict[str, Any]] = field(default_factory=list)
    about: dict[str, Step] = field(default_factory=dict)
    """What requests that hold a text get instead."""
    url: str = ""

    @property
    def client(self) -> BaseClientConfig:
        """How a rubric reaches it."""
        return BaseClientConfig(base_url=self.url, api_key_var="NO_SUCH_KEY")

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(await request.json())
        content = self.requests[-1]["messages"][0]["content"]
        named = [step for text, step in self.about.items() if text in content]
        step = named[0] if named else self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        await asyncio.sleep(step.delay)
        if step.cut:
            assert request.transport is not None
            request.transport.abort()
        if step.raw is not None:
            return web.Response(text=step.raw, status=step.status, content_type="application/json")
        if step.status != 200:
            headers = {"retry-after-ms": "10"}
            return web.json_response({"error": {"message": "no"}}, status=step.status, headers=headers)
        message = {"role": "assistant", "content": step.text, "refusal": step.refusal}
        choice = {"index": 0, "message": message, "finish_reason": step.finish}
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "judge"}
        return web.json_response({**body, "choices": [choice], "usage": usage})


@asynccontextmanager
async def judge_server(*steps: Step, about: dict[str, Step] | None = None) -> AsyncIterator[JudgeServer]:
    """The server on a free port of the loopback."""
    server = JudgeServer(list(steps), about=about or {})
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    async with served(app) as url:
        server.url = f"{url}/v1"
        yield server
