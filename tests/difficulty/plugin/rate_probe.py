"""A verifiers plugin for real runs without a sandbox: tasks whose outcome the scripted replies decide.

A row says how it behaves (`hang_setup`), a reply says how its attempt ends (`right`, `wrong`, `half`,
`hang-scoring`). The harness calls the model in process, so that a run of many rollouts takes a second.
"""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import verifiers.v1 as vf

AnyTrace = vf.Trace[Any, Any, Any]
AnyTask = vf.Task[Any, Any, Any]

__all__ = ["ProbeEnv", "ProbeHarness", "ProbeTaskset"]


class ProbeData(vf.TaskData):
    hang_setup: bool = False


class ProbeTask(vf.Task[ProbeData]):
    @property
    def key(self) -> str:
        return f"probe:{self.data.id}"

    async def setup(self, trace: AnyTrace, runtime: vf.Runtime) -> None:
        if self.data.hang_setup:
            await asyncio.sleep(3600)

    @vf.reward(weight=1.0)
    async def correct(self, trace: AnyTrace) -> float:
        reply = trace.last_reply
        if reply == "hang-scoring":
            await asyncio.sleep(3600)
        return {"right": 1.0, "half": 0.5}.get(reply, 0.0)


class ProbeTasksetConfig(vf.TasksetConfig):
    rows: Path = Path("rows.json")


class ProbeTaskset(vf.Taskset[ProbeTask, ProbeTasksetConfig]):
    def load(self) -> Iterable[ProbeTask]:
        for row in json.loads(self.config.rows.read_text()):
            yield ProbeTask(ProbeData(**row), self.config.task)


class ProbeHarnessConfig(vf.HarnessConfig):
    pass


class ProbeHarness(vf.Harness[ProbeHarnessConfig]):
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: AnyTrace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        headers = {"Authorization": f"Bearer {secret}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{endpoint}/chat/completions", json=body) as response,
        ):
            text = await response.text()
        return vf.ProgramResult(exit_code=int(response.status != 200), stdout="", stderr=text)


class ProbeEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(harness=ProbeHarnessConfig(id="rate-probe"), runtime=vf.SubprocessConfig())
    sub: vf.AgentConfig = vf.AgentConfig(harness=ProbeHarnessConfig(id="rate-probe"), runtime=vf.SubprocessConfig())
    consult: int = 0
    """How many attempts of the `sub` seat run before the agent's."""


class ProbeEnv(vf.Env[ProbeEnvConfig]):
    async def setup(self, agents: vf.Agents) -> None:
        agents.sub.trainable = False

    async def run(self, task: AnyTask, agents: vf.Agents) -> None:
        for _ in range(self.config.consult):
            await agents.sub.run(task.with_data(prompt="task=sub plan=wrong", hang_setup=False))
        await agents.agent.run(task)
