"""`python -m opencode_simulation serve|play|parity|snapshot`: worlds from the shell.

Exit code 0: done, or the same; 1: different, or failed; 2: wrong use.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from mcp.client.client import Client
from mcp.types import TextContent, Tool
from opencode_runs.console_command import printable, say
from verifiers.v1.errors import ToolsetError

from opencode_simulation.alone import WorldAlone, serve_alone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.errors import WorldError
from opencode_simulation.ledger import LedgerEntry
from opencode_simulation.parity import Offering, check_parity, list_tools, write_snapshot
from opencode_simulation.plain_json import text_of
from opencode_simulation.reference import SAMPLES, find_world

_HELP = "a line calls a tool: NAME {JSON arguments}, or NAME VALUE where it has one parameter; `quit` ends"


async def play(world: WorldAlone, lines: TextIO, screen: TextIO) -> None:
    async with Client(world.server()) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        screen.write(f"{_HELP}\n" + "".join(f"  {_usage(tool)}\n" for tool in tools.values()))
        screen.write(f"\n{printable(text_of(world.first_observation))}\n")
        while not (world.ledger.summary.terminated or world.ledger.summary.truncated or world.ledger.summary.error):
            screen.write("> ")
            screen.flush()
            line = await asyncio.to_thread(lines.readline)
            if line.strip() in ("quit", "exit") or not line:
                break
            if line.strip():
                screen.write(printable(await _answer(world, client, tools, line.strip())) + "\n")
        before = len(world.ledger.steps)
        await world.episode.finish()
    screen.writelines(f"the final state {printable(_unseen(entry))}\n" for entry in world.ledger.steps[before:])
    if (whole := world.ledger.summary).error is None:
        screen.write(f"return {whole.total_reward:g} after {whole.steps} steps\n")


async def _answer(world: WorldAlone, client: Client, tools: dict[str, Tool], line: str) -> str:
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
    end = " · the end" if entry.terminated or entry.truncated else ""
    return f"| reward {entry.reward:g}{end}" + (f" · {json.dumps(entry.info)}" if entry.info else "")


def _arguments(tool: Tool, text: str) -> dict[str, object]:
    if not text:
        return {}
    if text.startswith("{"):
        return dict(json.loads(text))
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


_EXAMPLES = """\
examples:
  # a world as an MCP server, with its ledger in a file
  python -m opencode_simulation serve issue-tracker --seed 3 --port 9000 --ledger steps.jsonl

  # play it in this terminal
  python -m opencode_simulation play frozen-lake --seed 3 --config '{"slippery": false}'

  # is the simulation what production is? what production is, as a file
  python -m opencode_simulation parity my_worlds:Shop https://tools.example.com/mcp
  python -m opencode_simulation snapshot https://tools.example.com/mcp shop.json
  python -m opencode_simulation parity my_worlds:Shop shop.json --descriptions
"""
_OFFERING = "a world, a URL, stdio:PROGRAM, module:name of an MCP server object, or a .json snapshot"


def _offering(text: str) -> Offering:
    return find_world(text) if text in SAMPLES else text


def _alone(options: argparse.Namespace) -> WorldAlone:
    spec = EpisodeSpec(seed=options.seed, config=json.loads(options.config), max_steps=options.max_steps)
    return WorldAlone(find_world(options.world), spec, options.ledger)


async def _serve(options: argparse.Namespace) -> None:
    async with _alone(options) as world:
        world.on_failure = lambda how: say(how, sys.stderr)
        address = f"world {options.world}: http://{options.host}"
        await serve_alone(world, options.host, options.port, lambda port: say(f"{address}:{port}/mcp"))
        await world.episode.finish()
    if world.ledger.summary.error is not None:
        sys.exit(1)


async def _play(options: argparse.Namespace) -> None:
    async with _alone(options) as world:
        await play(world, sys.stdin, sys.stdout)
        if (error := world.ledger.summary.error) is not None:
            raise WorldError(error)


async def _parity(options: argparse.Namespace) -> None:
    await check_parity(_offering(options.simulation), _offering(options.production), descriptions=options.descriptions)
    say("the same tools, with the same parameters")


async def _snapshot(options: argparse.Namespace) -> None:
    tools = await list_tools(_offering(options.offering))
    write_snapshot(tools, options.file)
    say(f"{len(tools)} tools written to {options.file}")


_COMMANDS = {"serve": _serve, "play": _play, "parity": _parity, "snapshot": _snapshot}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; its failure is a message on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m opencode_simulation",
        description="Simulated worlds: serve one, play one, compare one with the server that it stands for.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    episode = argparse.ArgumentParser(add_help=False)
    episode.add_argument("world", help=f"{', '.join(SAMPLES)}, or module:Class")
    episode.add_argument("--seed", type=int, help="seed of the episode (default: none)")
    episode.add_argument("--config", default="{}", help="JSON object, merged into the world's default configuration")
    episode.add_argument("--max-steps", type=int, help="steps after which the episode is truncated (default: no limit)")
    episode.add_argument("--ledger", type=Path, help="file to which each step is appended as a line of JSON")
    serve = commands.add_parser("serve", parents=[episode], help="serve one episode of a world under /mcp")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one (default)")
    commands.add_parser("play", parents=[episode], help="play one episode of a world in this terminal")
    parity = commands.add_parser("parity", help="compare the tools of a simulation with those of production")
    parity.add_argument("simulation", help=_OFFERING)
    parity.add_argument("production", help=_OFFERING)
    parity.add_argument("--descriptions", action="store_true", help="descriptions must be the same, too")
    snapshot = commands.add_parser("snapshot", help="save the tools that something offers")
    snapshot.add_argument("offering", help=_OFFERING)
    snapshot.add_argument("file", type=Path, help="JSON file to write")
    options = parser.parse_args(arguments)
    if "." not in sys.path and "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: worlds of the working directory are found
    try:
        asyncio.run(_COMMANDS[options.command](options))
    except ValueError as error:
        parser.error(str(error))
    except (ToolsetError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
