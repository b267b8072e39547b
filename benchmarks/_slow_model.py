"""A model that answers a recorded conversation, slowly, and on request with failures: a program of its own.

The step is found from the number of answers in a request. Requests for the model `faulty` fail in one of twenty cases:
half of those with 503, half with a stream that is cut in the middle.

Run: python benchmarks/_slow_model.py --answers FILE --seconds 2 --spread 1
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from aiohttp import web
from pydantic_core import from_json

FAILING = 0.05
MAX_BODY = 1 << 28


class SlowModel:
    """Plays the answers.

    Args:
        answers: whole event streams, by turn.
        seconds: mean time to an answer.
        spread: the most that one takes longer, or less.
    """

    def __init__(self, answers: Sequence[bytes], seconds: float, spread: float) -> None:
        self._answers = answers
        self._times = seconds - spread, seconds + spread
        self._random = random.Random(0)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One call."""
        try:
            body = from_json(await request.read())
        except ConnectionResetError:  # the caller left
            return web.Response(status=499)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        fault = self._random.random() if body["model"] == "faulty" else 1.0
        await asyncio.sleep(self._random.uniform(*self._times))
        if fault < FAILING / 2:
            return web.json_response({"error": {"message": "overloaded"}}, status=503)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with contextlib.suppress(ConnectionResetError):  # nobody waits for it any more
            await stream.prepare(request)
            text = self._answers[turn]
            await stream.write(text[: len(text) // 2] if fault < FAILING else text)
            if fault < FAILING and request.transport is not None:
                request.transport.abort()
        return stream


async def serve(model: SlowModel) -> None:
    """Listen, print the URL, and serve until standard input ends."""
    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_post("/v1/chat/completions", model.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"READY http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--spread", type=float, required=True)
    options = parser.parse_args()
    answers = [text.encode() for text in json.loads(options.answers.read_text())]
    asyncio.run(serve(SlowModel(answers, options.seconds, options.spread)))


if __name__ == "__main__":
    main()
