"""Which world a reference names."""

import re
from importlib import import_module
from weakref import WeakKeyDictionary

from opencode_simulation.failure import failure_text
from opencode_simulation.world import TOOL_NAME, World, declared

SAMPLES = {
    "frozen-lake": "opencode_simulation.samples.frozen_lake:FrozenLake",
    "issue-tracker": "opencode_simulation.samples.issue_tracker:IssueTracker",
    "order-desk": "opencode_simulation.samples.order_desk:OrderDesk",
}
"""The shipped worlds by name."""
_FOUND: WeakKeyDictionary[type[World], list[str]] = WeakKeyDictionary()
"""What was wrong with each class when it was first asked for."""


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
    except Exception as error:  # whatever its module raises when it is imported
        raise ValueError(f'world "{reference}" cannot be imported: {failure_text(error)}') from error
    if not (isinstance(found, type) and issubclass(found, World)):
        raise ValueError(f'"{reference}" is not a world: derive it from opencode_simulation.World')
    if problems := _problems(found):
        raise ValueError("\n  ".join([f'world "{reference}" cannot be played:', *problems]))
    return found


def _problems(world: type[World]) -> list[str]:
    if world not in _FOUND:
        from opencode_simulation.world_checks import problems_of  # an MCP server, half a second

        found = problems_of(world, world_name(world))
        _FOUND[world] = found or ([] if declared(world, TOOL_NAME) else ["it has no tool: mark a method with @tool"])
    return _FOUND[world]
