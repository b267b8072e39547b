"""Plays agents that send recorded requests to the model, each over a connection of its own: a program of its own.

Each connection to its socket is one agent: a line of JSON says who it is and where its model is; a line with its exit
code answers, or the end of the connection when it was killed. Agents of the round `faulty` are killed, one of ten, in
the middle of a call; those of the round `brief` ask nothing, those of `short` a little. As OpenCode does, an agent
sends a failed call again, under the same key, after a pause.

Run: python benchmarks/_simulated_agents.py --bodies FILE --socket PATH
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

START_SECONDS = 4.0
"""The longest that a program takes until its first call."""
BRIEF_SECONDS = 2 * START_SECONDS
"""Until all are there at once."""
SHORT_TURNS = 4
TRIES = 8
FINISH = re.compile(rb'"finish_reason": ?"')
MOST_PAUSE_SECONDS = 4.0
KILLED_OF = 10
TIME_LEFT_SECONDS = 0.5
"""A killed agent's, in the call in which it is killed: less than any answer takes."""


@dataclass(frozen=True)
class Wanted:
    """One agent."""

    number: int
    round: str
    url: str
    secret: str

    def killed_at(self, turns: int) -> int | None:
        """The turn at which it is killed."""
        if self.round != "faulty" or not is_killed(self.number):
            return None
        return self.number // KILLED_OF % turns


def is_killed(number: int) -> bool:
    """Whether the agent of that number is killed in the round with faults."""
    return number % KILLED_OF == 0


class CallFailed(Exception):
    """The model's answer did not come, or not to its end."""


async def call(http: aiohttp.ClientSession, wanted: Wanted, body: bytes, key: str) -> None:
    """One model call.

    Raises:
        CallFailed: it came to nothing.
    """
    headers = {"Authorization": f"Bearer {wanted.secret}", "Content-Type": "application/json", "x-session-id": "ses_1"}
    headers["Idempotency-Key"] = key
    try:
        async with http.post(f"{wanted.url}/chat/completions", data=body, headers=headers) as response:
            text = await response.read()
    except aiohttp.ClientError as error:
        raise CallFailed(str(error)) from error
    if response.status != 200 or not FINISH.search(text):
        raise CallFailed(f"{response.status}: {text[:300]!r}")


async def call_until_answered(http: aiohttp.ClientSession, wanted: Wanted, body: bytes) -> bool:
    """One step; whether it was answered in the end."""
    key = f"{uuid.uuid4()}:build"
    for attempt in range(TRIES):
        try:
            await call(http, wanted, body, key)
        except CallFailed as error:
            failure = error
            await asyncio.sleep(min(MOST_PAUSE_SECONDS, 0.5 * 2**attempt))
        else:
            return True
    print(f"agent {wanted.number} gives up: {failure}", file=sys.stderr, flush=True)
    return False


async def play(wanted: Wanted, bodies: Sequence[bytes]) -> int | None:
    """An agent's exit code; None when it was killed."""
    await asyncio.sleep(random.Random(wanted.number).uniform(0, START_SECONDS))
    if wanted.round == "brief":
        await asyncio.sleep(BRIEF_SECONDS)
        return 0
    if wanted.round == "short":
        bodies = bodies[:SHORT_TURNS]
    killed = wanted.killed_at(len(bodies))
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        for turn, body in enumerate(bodies):
            if turn == killed:
                with contextlib.suppress(TimeoutError, CallFailed):
                    async with asyncio.timeout(TIME_LEFT_SECONDS):
                        await call(http, wanted, body, str(uuid.uuid4()))
                return None
            if not await call_until_answered(http, wanted, body):
                return 1
    return 0


async def serve(bodies: Sequence[bytes], path: Path) -> None:
    """Play agents until standard input ends."""

    async def agent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            code = await play(Wanted(**json.loads(await reader.readline())), bodies)
            writer.write(b"" if code is None else b"%d\n" % code)
        finally:
            writer.close()

    async with await asyncio.start_unix_server(agent, path, backlog=4096):
        print("READY", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bodies", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    options = parser.parse_args()
    bodies = [json.dumps(body).encode() for body in json.loads(options.bodies.read_text())]
    asyncio.run(serve(bodies, options.socket))


if __name__ == "__main__":
    main()
