"""A person plays a world: one tool call a line, and what the agent would not see behind a `|`."""

import asyncio
import json
from typing import TextIO

from mcp.client.client import Client
from mcp.types import TextContent, Tool

from opencode_simulation.alone import WorldAlone
from opencode_simulation.ledger import LedgerEntry

_HELP = "a line calls a tool: NAME {JSON arguments}, or NAME VALUE where it has one parameter; `quit` ends"


async def play(world: WorldAlone, lines: TextIO, screen: TextIO) -> None:
    """Play to the end of the episode or of `lines`."""
    async with Client(world.server()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        screen.write(f"{_HELP}\n" + "".join(f"  {_usage(tool)}\n" for tool in tools.values()))
        screen.write(f"\n{_text(world.first_observation)}\n")
        while not (world.ledger.summary.terminated or world.ledger.summary.truncated or world.ledger.summary.error):
            screen.write("> ")
            screen.flush()
            line = await asyncio.to_thread(lines.readline)
            if line.strip() in ("quit", "exit") or not line:
                break
            if line.strip():
                screen.write(await _turn(world, client, tools, line.strip()) + "\n")
        before = len(world.ledger.steps)
        await world.episode.finish()
    screen.writelines(f"the final state {_unseen(entry)}\n" for entry in world.ledger.steps[before:])
    if (whole := world.ledger.summary).error is None:
        screen.write(f"return {whole.total_reward:g} after {whole.steps} steps\n")


async def _turn(world: WorldAlone, client: Client, tools: dict[str, Tool], line: str) -> str:
    name, _, rest = line.partition(" ")
    if name not in tools:
        return f"there is no tool {name!r}: there are {', '.join(tools)}"
    try:
        arguments = _arguments(tools[name], rest.strip())
    except ValueError as error:
        return f"{error}; {_HELP}"
    before = len(world.ledger.steps)
    result = await client.call_tool(name, arguments)
    shown = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    return shown + "".join(f"\n{_unseen(entry)}" for entry in world.ledger.steps[before:])


def _unseen(entry: LedgerEntry) -> str:
    """What the agent would not see of a step."""
    end = " · the end" if entry.terminated or entry.truncated else ""
    return f"| reward {entry.reward:g}{end}" + (f" · {json.dumps(entry.info)}" if entry.info else "")


def _arguments(tool: Tool, text: str) -> dict[str, object]:
    """The arguments that a line gives.

    Raises:
        ValueError: they are not a JSON object, and the tool has not just one parameter.
    """
    if not text:
        return {}
    if text.startswith("{"):
        found: dict[str, object] = json.loads(text)
        return found
    names = list(tool.input_schema.get("properties", {}))
    if len(names) != 1:
        raise ValueError(f"{tool.name} has the parameters {', '.join(names) or '(none)'}")
    try:
        return {names[0]: json.loads(text)}
    except ValueError:
        return {names[0]: text}


def _usage(tool: Tool) -> str:
    wanted = tool.input_schema.get("required", [])
    names = [name if name in wanted else f"[{name}]" for name in tool.input_schema.get("properties", {})]
    first = (tool.description or "").splitlines()[:1]
    return f"{' '.join([tool.name, *names])}: {''.join(first)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
