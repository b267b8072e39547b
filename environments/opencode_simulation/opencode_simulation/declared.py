"""What a world class declares: its tools and its resources."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

TOOL_NAME = "_simulation_tool"
RESOURCE_URI = "_simulation_resource"


def tools_of(world: object) -> dict[str, Callable[..., Any]]:
    """The tools by name, in the order in which the class declares them, those of its bases first.

    Raises:
        TypeError: two tools have one name.
    """
    return dict(_marked(world, TOOL_NAME))


def resources_of(world: object) -> dict[str, Callable[..., Any]]:
    """The resources by URI pattern.

    Raises:
        TypeError: two resources have one URI.
    """
    return dict(_marked(world, RESOURCE_URI))


def _marked(world: object, mark: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    owner = world if inspect.isclass(world) else type(world)
    names = dict.fromkeys(name for base in reversed(owner.__mro__) for name in vars(base))
    seen: dict[str, str] = {}
    for name in names:
        function = inspect.getattr_static(owner, name)
        label = getattr(function, mark, None)
        if label is None:
            continue
        if label in seen:
            raise TypeError(
                f"{owner.__name__}.{seen[label]} and .{name} are both {label!r}: name one of them otherwise"
            )
        seen[label] = name
        yield label, getattr(world, name)
