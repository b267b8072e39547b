"""Solves a task with nothing but OpenEnv's own generic client, of whatever version; the arguments are the URL, the
task's name and a command that solves it."""

import asyncio
import json
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient

url, task, command = (json.loads(argument) for argument in sys.argv[1:])


async def speak() -> dict[str, Any]:
    async with GenericEnvClient(base_url=url, message_timeout_s=240) as env:
        begun = await env.reset(task_id=task, episode_id="episode-7")
        ran = await env.step({"action_type": "exec", "command": command + "\necho solved"})
        state = await env.state()
        scored = await env.step({"action_type": "evaluate"})
    return {
        "instruction": begun.observation["instruction"],
        "output": ran.observation["output"],
        "state": state,
        "reward": scored.reward,
        "done": scored.done,
        "info": scored.observation["info"],
    }


print(json.dumps(asyncio.run(speak())))
