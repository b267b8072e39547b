"""Parity: a simulation and the production server that it stands for offer the same tools.

Invariant: `check_parity` returns only when every tool of either side is on the other and takes the same arguments; what
differs is in the error's text, with the tool's and the parameter's name.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches

from opencode_simulation.errors import SignatureMismatchError, ToolMismatchError
from opencode_simulation.listing import ListedTool, Offering, list_tools
from opencode_simulation.signatures import differences, signature_of
from opencode_simulation.world import World


async def check_parity(simulation: Offering, production: Offering, *, descriptions: bool = False) -> None:
    """Compare the tools of a simulation with those of production: names, and each parameter's name, place, type,
    default and whether it is required.

    Args:
        simulation: what an agent is given in training.
        production: what it stands for.
        descriptions: whether the descriptions of tools, of parameters and inside those must be the same, too.

    Raises:
        ToolMismatchError: a tool is on one side only; the text holds all other differences as well.
        SignatureMismatchError: a tool takes other arguments.
        ValueError: one side cannot be found, read or asked.
    """
    ours, theirs = await list_tools(simulation), await list_tools(production)
    wrong_tools = _tool_differences(ours, theirs)
    wrong_signatures = _signature_differences(ours, theirs, descriptions=descriptions)
    if not wrong_tools and not wrong_signatures:
        return
    lines = "\n".join(f"  {line}" for line in (*wrong_tools, *wrong_signatures))
    kind = ToolMismatchError if wrong_tools else SignatureMismatchError
    raise kind(f"the simulation is not what production is:\n{lines}")


def require_parity(world: type[World]) -> None:
    """Check a world against the production server that it names, if it names one; from any thread, loop or none.

    Raises:
        ToolMismatchError: a tool is on one side only.
        SignatureMismatchError: a tool takes other arguments.
        ValueError: the production server cannot be found, read or asked.
    """
    if world.PRODUCTION is None:
        return
    with ThreadPoolExecutor(1) as own_thread:  # a loop cannot be run inside a running one
        own_thread.submit(asyncio.run, check_parity(world, world.PRODUCTION)).result()


def _tool_differences(ours: list[ListedTool], theirs: list[ListedTool]) -> list[str]:
    names, wanted = [tool.name for tool in ours], [tool.name for tool in theirs]
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in wanted]
    lines = []
    for name in missing:
        close = get_close_matches(name, extra, 1)
        lines.append(f'tool "{name}": missing in the simulation' + (f' (which has "{close[0]}")' if close else ""))
    return lines + [f'tool "{name}": not in production' for name in extra]


def _signature_differences(ours: list[ListedTool], theirs: list[ListedTool], *, descriptions: bool) -> list[str]:
    production = {tool.name: signature_of(tool, descriptions=descriptions) for tool in theirs}
    return [
        f'tool "{tool.name}": {line}'
        for tool in ours
        if tool.name in production
        for line in differences(
            signature_of(tool, descriptions=descriptions), production[tool.name], descriptions=descriptions
        )
    ]
