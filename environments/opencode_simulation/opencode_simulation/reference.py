"""Which world a reference names, and what is wrong with its class: each with file and line, when it is loaded."""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool
from pydantic.warnings import ArbitraryTypeWarning

from opencode_simulation.errors import failure_text, said
from opencode_simulation.mcp_tools import nobody, offer_resource, signed_tool
from opencode_simulation.world import RESOURCE_URI, TOOL_NAME, World, declared

_LONGEST_NAME = 64
"""Characters of a tool's name that model endpoints take, the server's name before it included."""
_NO_METHODS = {staticmethod: "a static method", classmethod: "a class method", property: "a property"}


def problems_of(world: type[World], server_name: str) -> list[str]:
    """Everything wrong with the tools and resources of a class; `server_name` is put before its tools."""
    found = []
    hook = inspect.getattr_static(world, "default_config")
    if not isinstance(hook, classmethod | staticmethod):
        why = "mark it @classmethod, it is asked before there is a world"
        found.append(_told(hook, f"{world.__name__}.default_config: {why}"))
    for name in dict.fromkeys(name for base in reversed(world.__mro__) for name in vars(base)):
        method = inspect.getattr_static(world, name)
        for kind, mark in (("tool", TOOL_NAME), ("resource", RESOURCE_URI)):
            label = getattr(_inner(method), mark, None) or getattr(method, mark, None)
            if label is not None:
                problems = [*(_name(label, server_name) if kind == "tool" else ()), *_method(method)]
                problems = problems or list(_offered(kind, label, method))
                found += [_told(method, f"{kind} {world.__name__}.{name}: {problem}") for problem in problems]
    try:
        declared(world, TOOL_NAME)
    except TypeError as error:
        found.append(_told(world, str(error)))
    return found


def _inner(method: Any) -> Any:
    """The function in a static or class method, a property, or a partial method."""
    return next((found for part in ("__func__", "fget", "func") if (found := getattr(method, part, None))), method)


def _name(label: Any, server_name: str) -> Iterator[str]:
    if not isinstance(label, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", label):
        yield f"its name {label!r} may have letters, digits, _ and - only"
    elif len(whole := f"{server_name}_{label}") > _LONGEST_NAME:
        yield f"the agent knows it as {whole!r}, which has {len(whole)} characters, and models take {_LONGEST_NAME}"


def _method(method: Any) -> Iterator[str]:
    if not inspect.isfunction(method):
        what = next((words for kind, words in _NO_METHODS.items() if isinstance(method, kind)), "no plain method")
        yield f"is {what}: write a method with self, which is the episode"
        return
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        yield "yields: return one answer"
    parameters = list(inspect.signature(method).parameters.values())
    if not parameters or parameters[0].kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        yield "has no self, which is the episode"
    for parameter in parameters[1:]:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            yield f"{parameter.name} is positional-only, and arguments come by name: take the / away"
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield f"{parameter} says nothing of what it takes: name each parameter"


def _offered(kind: str, label: str, method: Callable[..., Any]) -> Iterator[str]:
    try:
        if kind == "resource":
            offer_resource(MCPServer("check"), label, method, nobody)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("error", ArbitraryTypeWarning)
            tool = Tool.from_function(signed_tool(label, method, nobody), name=label, structured_output=False)
    except Exception as error:  # noqa: BLE001 - whatever an annotation, or the library, has against it
        what = "its parameters cannot be told to an agent: " if kind == "tool" else ""
        yield what + said(error).splitlines()[0]
        return
    if tool.context_kwarg is not None:
        yield f"{tool.context_kwarg} asks for the server's context, and there is none: self is the episode"


def _told(thing: Any, problem: str) -> str:
    inner = _inner(thing)
    code = getattr(inspect.unwrap(inner) if callable(inner) else inner, "__code__", None)
    if code is not None:
        return f"{code.co_filename}, line {code.co_firstlineno}: {problem}"
    try:
        return f"{inspect.getsourcefile(thing)}, line {inspect.getsourcelines(thing)[1]}: {problem}"
    except (OSError, TypeError):
        return problem


SAMPLES = {
    rows.stem: f"opencode_simulation.samples.{rows.stem.replace('-', '_')}:{rows.stem.title().replace('-', '')}"
    for rows in sorted((Path(__file__).parent / "samples").glob("*.jsonl"))
}
"""The shipped worlds by name, which are those of their rows, modules and classes: `order-desk`, `OrderDesk`."""
_FOUND: WeakKeyDictionary[type[World], list[str]] = WeakKeyDictionary()
"""What was wrong with each class when it was first asked for."""


def world_name(world: type[World]) -> str:
    """The name of the world's MCP server: its own, or the class's in snake case."""
    return world.NAME or re.sub(r"(?<!^)(?=[A-Z])", "_", world.__name__).lower()


def find_world(reference: str) -> type[World]:
    """The world class of a shipped world's name or of `module:Class`; a `ValueError` that says what to write where
    there is none."""
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
    if found not in _FOUND:
        _FOUND[found] = problems_of(found, world_name(found))
        if not _FOUND[found] and not declared(found, TOOL_NAME):
            _FOUND[found] = ["it has no tool: mark a method with @tool"]
    if problems := _FOUND[found]:
        raise ValueError("\n  ".join([f'world "{reference}" cannot be played:', *problems]))
    return found
