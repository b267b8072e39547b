"""Which world a reference names."""

import re
from importlib import import_module

from opencode_env.simulation.declared import tools_of
from opencode_env.simulation.world import World

SAMPLES = {
    "frozen-lake": "opencode_env.simulation.samples.frozen_lake:FrozenLake",
    "issue-tracker": "opencode_env.simulation.samples.issue_tracker:IssueTracker",
}
"""The shipped worlds by name."""


def world_name(world: type[World]) -> str:
    """The name of the world's MCP server: its own, or the class's in snake case."""
    return world.NAME or re.sub(r"(?<!^)(?=[A-Z])", "_", world.__name__).lower()


def find_world(reference: str) -> type[World]:
    """The world class of a shipped world's name or of `module:Class`.

    Raises:
        ValueError: there is none; the message says what to write.
    """
    module, _, name = SAMPLES.get(reference, reference).partition(":")
    if not name:
        raise ValueError(f'there is no world "{reference}": shipped are {", ".join(SAMPLES)}; or write "module:Class"')
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f'world "{reference}" cannot be imported: {error}; write "module:Class", of a module on PYTHONPATH'
        ) from error
    if not (isinstance(found, type) and issubclass(found, World)):
        raise ValueError(f'"{reference}" is no world: derive it from opencode_env.simulation.World')
    if not tools_of(found):
        raise ValueError(f'world "{reference}" has no tool: mark a method with @tool')
    return found
