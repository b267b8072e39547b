"""An engine with vLLM's token-in, token-out protocol, as far as verifiers' training client speaks it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from examples.learn.spoken import Speaker, Spoken

GATHER_SECONDS = 0.005
"""How long a call waits for others, to be answered together with them."""
WINDOW = 1 << 14
"""Tokens of a prompt."""


class Engine:
    """Answers all calls that are waiting in one batch.

    Args:
        speaker: runs in a thread.
        name: the model's.
    """

    def __init__(self, speaker: Speaker, name: str) -> None:
        self.seconds = 0.0
        """How long the speaker spoke."""
        self._speaker = speaker
        self._name = name
        self._waiting: asyncio.Queue[tuple[list[int], asyncio.Future[Spoken]]] = asyncio.Queue()

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            calls = [await self._waiting.get()]
            await asyncio.sleep(GATHER_SECONDS)
            while not self._waiting.empty():
                calls.append(self._waiting.get_nowait())
            started = loop.time()
            try:
                answers = await asyncio.to_thread(self._speaker, [prompt for prompt, _ in calls])
            except Exception as error:  # noqa: BLE001  those who wait get whatever a speaker raises
                for _, waits in calls:
                    if not waits.done():
                        waits.set_exception(error)
                continue
            self.seconds += loop.time() - started
            for (_, waits), spoken in zip(calls, answers, strict=True):
                if not waits.done():
                    waits.set_result(spoken)

    async def _generate(self, request: web.Request) -> web.Response:
        prompt = (await request.json())["token_ids"]
        waits: asyncio.Future[Spoken] = asyncio.get_running_loop().create_future()
        await self._waiting.put((prompt, waits))
        spoken = await waits
        pairs = zip(spoken.tokens, spoken.logprobs, strict=True)
        choice = {
            "index": 0,
            "token_ids": spoken.tokens,
            "logprobs": {"content": [{"token": f"token_id:{token}", "logprob": chance} for token, chance in pairs]},
            "finish_reason": "stop" if spoken.stopped else "length",
        }
        return web.json_response({"request_id": "", "choices": [choice]})

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self._name, "max_model_len": WINDOW}]})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The engine's base URL."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/inference/v1/generate", self._generate)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        answering = asyncio.create_task(self._answer())
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await answering
            await runner.cleanup()
