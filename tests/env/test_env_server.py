"""`opencode-env` behind verifiers' own env server: spawned workers, task data as JSON, episodes streamed back."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opencode_env.scripted_model import MODEL_ID, Fault, FaultKind, Reply, SamplesPolicy, ScriptedModel
from opencode_env.scripted_model.request import ChatRequest
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.serve import EnvClient, env_config_data
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import load_taskset, resolve_env_config

from tests.support.user_home import UserHome, closed_port, until

pytestmark = [pytest.mark.opencode, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("serve_program.py")


class SamplesButOne:
    """Solves the samples, except one, in which it never answers."""

    def __init__(self, silent_in: str) -> None:
        self.samples = SamplesPolicy(1.0)
        self.silent_in = next(sample.question for sample in self.samples.samples if sample.id == silent_in)

    def __call__(self, request: ChatRequest, /) -> Reply:
        if any(self.silent_in.strip() in text for text in request.user_texts):
            return Reply(faults=(Fault(kind=FaultKind.HANG),))
        return self.samples(request)


class Server:
    """A served environment, its client and its tasks' wire data."""

    def __init__(self, process: asyncio.subprocess.Process, client: EnvClient, model: ScriptedModel) -> None:
        config = resolve_env_config({"taskset": {"id": "opencode-env"}})
        self.process = process
        self.client = client
        self.model = model
        self.tasks = {task.data.id: task.data.model_dump(mode="json") for task in load_taskset(config.taskset)}

    async def run(self, task_id: str) -> WireEpisode:
        """One rollout; its task travels as JSON text would."""
        endpoint = EvalClientConfig(base_url=self.model.base_url, api_key_var="NO_SUCH_KEY")
        data = json.loads(json.dumps(self.tasks[task_id]))
        return await self.client.run(endpoint, MODEL_ID, SamplingConfig(), data)


@contextlib.asynccontextmanager
async def served(home: UserHome, model: ScriptedModel) -> AsyncIterator[Server]:
    """The server in processes of their own, at home at `home`."""
    address = f"tcp://127.0.0.1:{closed_port()}"
    config = home.root / "config.json"
    config.write_text(json.dumps(env_config_data(resolve_env_config({"taskset": {"id": "opencode-env"}}))))
    argv = [sys.executable, str(PROGRAM), str(config), address]
    process = await asyncio.create_subprocess_exec(*argv, cwd=home.work, env=home.environment())
    client = EnvClient(address)
    try:
        await client.wait_for_server_startup(timeout=60, interval=0.3)
        yield Server(process, client, model)
    finally:
        await client.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_rollouts_run_in_spawned_workers_and_a_terminated_server_leaves_nothing(home: UserHome) -> None:
    async with ScriptedModel(SamplesButOne("count-errors")) as model, served(home, model) as server:
        episodes = await asyncio.gather(server.run("arithmetic-orders"), server.run("csv-report"))
        for episode, name in zip(episodes, ("arithmetic-orders", "csv-report"), strict=True):
            (trace,) = episode.traces
            assert episode.ok
            assert (trace.task.data.id, trace.reward) == (name, 1.0)
            assert trace.info["agent"]["exit_code"] == 0
            assert (trace.metrics["total_tool_calls"] or 0) > 0

        hanging = asyncio.ensure_future(server.run("count-errors"))
        await until(lambda: model.active == 1)
        inside = [command for command in home.processes().values() if command.startswith("opencode run")]
        assert inside, home.processes()
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await server.process.wait()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        assert home.leftovers() == []


async def test_a_cancelled_request_ends_its_rollout_and_the_worker_serves_on(home: UserHome) -> None:
    async with ScriptedModel(SamplesButOne("count-errors")) as model, served(home, model) as server:
        hanging = asyncio.ensure_future(server.run("count-errors"))
        await until(lambda: model.active == 1)
        assert len(home.sandboxes()) == 1
        hanging.cancel()
        await until(lambda: not home.sandboxes(), seconds=20)
        episode = await server.run("arithmetic-orders")
        assert episode.traces[0].reward == 1.0
