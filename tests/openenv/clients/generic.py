"""Calls a server with nothing but OpenEnv's own clients, of whatever version; the arguments are URL, call, wrong
call."""

import asyncio
import json
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

url, call, wrong = (json.loads(argument) for argument in sys.argv[1:])


async def speak() -> dict[str, Any]:
    said: dict[str, Any] = {}
    async with MCPToolClient(base_url=url, message_timeout_s=240) as env:
        await env.reset()
        said["tools"] = [[tool.name, tool.description, tool.input_schema] for tool in await env.list_tools()]
        said["answer"] = json.loads(await env.call_tool("run_rollout", **call))
        try:
            await env.call_tool("run_rollout", **wrong)
        except RuntimeError as error:
            said["refusal"] = str(error)
    async with GenericEnvClient(base_url=url, message_timeout_s=240) as env:
        await env.reset(episode_id="episode-7")
        step = await env.step({"type": "call_tool", "tool_name": "run_rollout", "arguments": call})
        said["text"] = json.loads(step.observation["result"]["content"][0]["text"])
        said["state"] = await env.state()
    return said


print(json.dumps(asyncio.run(speak())))
