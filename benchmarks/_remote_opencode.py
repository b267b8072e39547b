"""Rollouts of the real OpenCode in Prime Sandboxes of the tests' server, with a confined sandbox behind each."""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from unittest.mock import patch

from opencode_env.scripted_model import Fault, FaultKind, Reply, Script, ScriptedModel, ScriptPolicy, ToolCall
from verifiers.v1.runtimes import PrimeConfig

from benchmarks._hosted import PROMPT, AnyEpisode, Hosted, hosted_rows
from benchmarks._remote_rollouts import Server, interception, server

IMAGE = "registry.example/opencode:prepared"
AT_ONCE = 2
STEPS = Script(
    steps=(
        Reply(
            tool_calls=(ToolCall(name="write", arguments={"filePath": "/tmp/hello.txt", "content": "hello\n"}),),
            faults=(Fault(kind=FaultKind.DELAY, seconds=2.0),),
        ),
        Reply(text="done"),
    )
)


@dataclass(frozen=True)
class Beside:
    """What became of them."""

    rollouts: int
    failed: int
    living: int
    before_first_call: int


async def opencode_beside(rollouts: int) -> Beside:
    """One alone, of which the requests before its first model call are counted, then the others."""
    if not rollouts:
        return Beside(0, 0, 0, 0)
    runtime = PrimeConfig(image=IMAGE).model_dump()
    options = {"agent": {"runtime": runtime}, "interception": interception()}
    rows = [{"id": f"t{index}", "question": PROMPT, "answer": "done"} for index in range(rollouts)]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        async with server("--image", IMAGE) as api, ScriptedModel(ScriptPolicy(STEPS)) as model:
            with patch.dict(os.environ, {**api.environment, "HOME": home}):
                async with hosted_rows(model.base_url, rows, options) as hosted:
                    first, before = await alone(hosted, model, api)
                    episodes = [first, *await crowd(hosted, range(1, rollouts))]
            living = (await api.order("seen"))["living"]
    print(f"  {rollouts} rollouts of OpenCode: {time.monotonic() - started:.0f} s", flush=True)
    return Beside(rollouts, sum(not episode.ok for episode in episodes), living, before)


async def alone(hosted: Hosted, model: ScriptedModel, api: Server) -> tuple[AnyEpisode, int]:
    """One rollout, and the requests that the server had when its first model call came."""
    playing = asyncio.ensure_future(hosted.play(0))
    while not model.requests and not playing.done():
        await asyncio.sleep(0.02)
    before = sum((await api.order("seen"))["requests"].values())
    return await playing, before


async def crowd(hosted: Hosted, rows: Iterable[int]) -> list[AnyEpisode]:
    """Rollouts of these rows, a few at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(row: int) -> AnyEpisode:
        async with gate:
            return await hosted.play(row)

    return await asyncio.gather(*map(one, rows))
