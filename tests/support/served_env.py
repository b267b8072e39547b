"""An environment behind verifiers' own env server, in processes of its own, as prime-rl talks to it."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opencode_env.scripted_model import ScriptedModel
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.serve import EnvClient, env_config_data
from verifiers.v1.utils.loaders import load_taskset, resolve_env_config

from tests.support.forked import Forked
from tests.support.user_home import UserHome, closed_port
from tests.support.waiting import PATIENCE_SECONDS

PROGRAM = Path(__file__).with_name("serve_program.py")


@dataclass(frozen=True)
class ServedEnv:
    """A served environment: its broker, its client, and its tasks' wire data by id."""

    process: Forked
    client: EnvClient
    tasks: Mapping[str, Mapping[str, Any]]

    async def run(self, task_id: str, model: ScriptedModel, model_name: str) -> WireEpisode:
        """One rollout against `model`; its task travels as JSON text would."""
        endpoint = EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        data = json.loads(json.dumps(self.tasks[task_id]))
        return await self.client.run(endpoint, model_name, SamplingConfig(), data)


@contextlib.asynccontextmanager
async def served(
    home: UserHome, fields: dict[str, Any], workers: int = 2, env: Mapping[str, str] | None = None
) -> AsyncIterator[ServedEnv]:
    """The environment that `fields` configure, served at `home`; ended on exit should it still run.

    With one worker there is no broker, and nothing is spawned, which takes four seconds of imports.
    """
    config = resolve_env_config(fields)
    saved, address = home.root / "config.json", f"tcp://127.0.0.1:{closed_port()}"
    saved.write_text(json.dumps(env_config_data(config)))
    argv = [sys.executable, str(PROGRAM), str(saved), address, str(workers)]
    with (home.root / "server.log").open("wb") as log:
        process = await asyncio.to_thread(Forked, argv, home.work, home.environment(env), log, log)
    client = EnvClient(address)
    tasks = {str(task.data.id): task.data.model_dump(mode="json") for task in load_taskset(config.taskset)}
    try:
        await client.wait_for_server_startup(timeout=PATIENCE_SECONDS, interval=0.3)
        yield ServedEnv(process, client, tasks)
    finally:
        await client.close()
        process.terminate()
        await process.ended()
