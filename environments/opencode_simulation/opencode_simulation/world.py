"""A world: one class whose tools an agent calls, whose rewards only the environment reads.

One instance is one episode of one rollout. Its methods are called one at a time, each in the world's own thread (or, if
it is a coroutine function, on the server's loop), so a world needs no locks.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar, overload

from pydantic import JsonValue

TOOL_NAME = "_simulation_tool"
RESOURCE_URI = "_simulation_resource"
Method = TypeVar("Method", bound=Callable[..., Any])


class Step(NamedTuple):
    """Holds what one action did, in the order of Gymnasium's `step`."""

    observation: Any
    """What the agent sees: text, or anything JSON can say. It is all that the agent sees."""
    reward: float = 0.0
    terminated: bool = False
    """The episode has come to its own end."""
    truncated: bool = False
    """The episode was cut off."""
    info: Mapping[str, Any] = {}
    """Whatever the ledger shall hold beside the rest; the agent does not see it."""


class World:
    """One episode of a simulation. A subclass has `reset` and tools; each method may be a coroutine function.

    A tool is a method marked `@tool`. Its signature is the schema, its docstring the description, for the agent. It
    returns a `Step`, or an action that `step` shall take. It raises `InvalidAction` for a call that makes no sense;
    whatever else it raises is a failure of the world and ends the rollout as a `WorldError`.
    """

    NAME: ClassVar[str] = ""
    """Name of its MCP server, which OpenCode puts before the names of its tools (`<name>_<tool>`)."""
    PROMPT: ClassVar[str] = "{observation}"
    """The prompt of a row without one; `{observation}` is the first observation."""
    PRODUCTION: ClassVar[str | None] = None
    """The server that it stands for: a URL, a JSON snapshot, or `module:name` of an MCP server object. An environment
    does not start with a world that differs from it."""

    @classmethod
    def default_config(cls) -> Mapping[str, JsonValue]:
        """Return what a row's own `config` is laid on."""
        return {}

    def reset(self, seed: int | None, config: Mapping[str, JsonValue]) -> Any:
        """Start the episode, and return the first observation; with the same seed and config, the same one."""
        raise NotImplementedError(f"{type(self).__name__} has no reset(seed, config)")

    def step(self, action: Any) -> Step:
        """Take an action that a tool has returned; any five values in the order of `Step` will do."""
        raise NotImplementedError(
            f"{type(self).__name__} has no step(action), and a tool returned no Step but {type(action).__name__}"
        )

    def finish(self) -> Step | None:
        """Judge the final state, once, when the agent has stopped, the simulated user has said stop, or a limit of the
        rollout has ended it, and the episode had not ended yet: a reward on what all its actions have led to. It
        stands in the ledger; nobody sees its observation. It may take 2 s, with a shared server as long as calls may. A
        tool of this name is a tool and nothing else."""
        return None

    def close(self) -> None:
        """Free what the world holds; called once, also after a failure. A server of the rollout's own is killed when it
        takes more than some 3 s."""

    def format_observation(self, observation: Any) -> Any:
        """The observation as the agent sees it."""
        return observation

    def formatter(self) -> Callable[[Any], Any]:
        """Return what makes of an observation what the agent sees: `format_observation`."""
        return self.format_observation


@overload
def tool(method: Method) -> Method: ...
@overload
def tool(*, name: str) -> Callable[[Method], Method]: ...
def tool(method: Method | None = None, *, name: str | None = None) -> Method | Callable[[Method], Method]:
    """Mark a method of a world as a tool, under its own name or `name`."""

    def marked(function: Method) -> Method:
        given: Any = function  # which need not be what was asked for
        if not callable(given) and not isinstance(given, classmethod):  # that one is refused with its line when loaded
            raise TypeError(f"@tool marks a method, and this is {function!r}: write @tool or @tool(name={function!r})")
        setattr(function, TOOL_NAME, name or function.__name__)
        return function

    return marked if method is None else marked(method)


def resource(uri: str) -> Callable[[Method], Method]:
    """Mark a method of a world as the resource `uri`; names in braces are its parameters. Reading it is not a step."""

    if not isinstance(uri, str):
        raise TypeError('@resource needs its URI: write @resource("scheme://name")')

    def marked(function: Method) -> Method:
        setattr(function, RESOURCE_URI, uri)
        return function

    return marked


def declared(world: object, mark: str) -> dict[str, Callable[..., Any]]:
    """The tools of a world by name (`TOOL_NAME`), or its resources by URI pattern (`RESOURCE_URI`), in the order in
    which the class declares them, those of its bases first; a `TypeError` where two have one name or URI."""
    owner = world if inspect.isclass(world) else type(world)
    found: dict[str, Callable[..., Any]] = {}
    seen: dict[str, str] = {}
    for name in dict.fromkeys(name for base in reversed(owner.__mro__) for name in vars(base)):
        label = getattr(inspect.getattr_static(owner, name), mark, None)
        if label is None:
            continue
        if label in seen:
            raise TypeError(
                f"{owner.__name__}.{seen[label]} and .{name} are both {label!r}: name one of them otherwise"
            )
        seen[label] = name
        found[label] = getattr(world, name)
    return found
