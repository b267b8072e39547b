"""An environment that never starts: its refusal tells what it was started with, and an engine that is asked for it."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.cluster.config import ClusterConfig
from opencode_env.cluster.ray_engine import RayEngine
from opencode_env.cluster.worker import versions
from opencode_env.errors import ClusterError


class TellingEnv(vf.Env[vf.EnvConfig]):
    def __init__(self, config: vf.EnvConfig) -> None:
        told = {name: os.environ.get(name) for name in ("A_KEY", "A_SETTING", "MATHVERDICT_WORKERS")}
        raise ValueError(json.dumps({**told, "cwd": os.getcwd()}))

    async def run(self, task: vf.Task[Any, Any, Any], agents: vf.Agents) -> None:
        raise NotImplementedError


async def tell(address: str, several: list[dict[str, Any]]) -> None:
    """Print a line of JSON for each of these options: what came of a worker that was started with them."""
    joined = RayEngine(ClusterConfig(type="ray", address=address))
    await joined.connect()
    for options in several:
        engine = RayEngine(ClusterConfig(type="ray", address=address, **options))
        order = {"versions": versions(), "cwd": str(Path.cwd()), "files": [], "env": {"A_KEY": "secret"}, "cpus": 1.5}
        order |= {"kind": "telling_env:TellingEnv", "config": {}, "sandbox_memory": 0, "memory": None, "token": None}
        try:
            await engine.start_worker(json.dumps(order).encode())
        except (ClusterError, ValueError) as error:
            print(json.dumps(str(error)), flush=True)
    await joined.close()


if __name__ == "__main__":
    asyncio.run(tell(sys.argv[1], json.loads(sys.argv[2])))
