"""Parity: a simulation and the production server that it stands for offer the same tools.

Tools come from a world, an MCP server object, a URL, a program on standard input, or a snapshot, which compares like
the server that it was taken of. Two signatures are equal exactly when a call that is right for one tool is right for
the other and means the same there. Titles, `$schema`, where a nested schema is defined, a default of null (left out),
and that further keys are refused say nothing about a right call.
"""

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from opencode_env.listed_tools import all_tools, described
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from opencode_simulation.errors import SignatureMismatchError, ToolMismatchError
from opencode_simulation.mcp_tools import nobody, offer_world
from opencode_simulation.world import World


class ListedTool(BaseModel):
    """One tool as a server lists it, and as a snapshot holds it."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue]


Offering = type[World] | MCPServer[Any] | Server[Any] | Path | str
"""A world class; an MCP server object; a JSON snapshot; or text: the URL of a live server, `stdio:program arguments`,
`module:name` of an MCP server object or world class, or the path of a snapshot (`….json`)."""
_SNAPSHOT = TypeAdapter(list[ListedTool])


async def list_tools(offering: Offering) -> list[ListedTool]:
    """The tools that something offers, in its order; a `ValueError` that says what to write where it cannot be found or
    read, or does not answer."""
    if isinstance(offering, Path):
        return _read_snapshot(offering)
    if isinstance(offering, str):
        if offering.startswith(("http://", "https://")):
            return await _ask(Client(offering), offering)
        if offering.startswith("stdio:"):
            command, *arguments = shlex.split(offering.removeprefix("stdio:"))
            transport = stdio_client(StdioServerParameters(command=command, args=arguments), errlog=sys.stderr)
            return await _ask(Client(transport), offering)
        if offering.endswith(".json"):
            return _read_snapshot(Path(offering))
        module, _, attribute = offering.partition(":")
        if not attribute:
            raise ValueError(
                f"{offering!r} is not an MCP server: write a URL, stdio:PROGRAM, module:name of a server object or "
                "world, or the path of a .json snapshot"
            )
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"MCP server {offering!r} cannot be imported: {error}") from error
        if not isinstance(found, Server | MCPServer) and not (isinstance(found, type) and issubclass(found, World)):
            raise ValueError(f"{offering!r} is neither an MCP server object nor a world but {type(found).__name__}")
        return await list_tools(found)
    if isinstance(offering, type):
        mcp: MCPServer[Any] = MCPServer(offering.__name__)
        offer_world(mcp, offering, nobody)
        return await list_tools(mcp)
    return await _ask(Client(offering), f"the MCP server {getattr(offering, 'name', '')!r}")


def write_snapshot(tools: list[ListedTool], path: Path) -> None:
    path.write_text(json.dumps([tool.model_dump() for tool in tools], indent=2, ensure_ascii=False) + "\n")


async def _ask(client: Client, name: str) -> list[ListedTool]:
    try:
        async with asyncio.timeout(120.0), client:  # a program may have to be fetched first
            return [
                ListedTool(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
                for tool in await all_tools(client)
            ]
    except Exception as error:  # whatever the library makes of a server
        raise ValueError(f"{name} does not list its tools: {described(error)}") from error


def _read_snapshot(path: Path) -> list[ListedTool]:
    try:
        return _SNAPSHOT.validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"snapshot {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{path} is not a snapshot: {place or 'it'}: {problem['msg']}") from error


_ABSENT = "(none)"
_SILENT = ("title", "$schema", "$defs", "definitions", "examples")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
"""Their keys are names and no words of the schema."""
_VALUES = ("const", "default", "enum")
"""They hold values and no schemas."""
_UNORDERED = ("required", "enum", "type", "anyOf", "oneOf")
_JAVASCRIPT_INTEGERS = {"minimum": -(2**53 - 1), "maximum": 2**53 - 1}


@dataclass(frozen=True)
class Parameter:
    schema: Any
    required: bool
    default: Any
    description: str


@dataclass(frozen=True)
class Signature:
    description: str
    parameters: Mapping[str, Parameter]


def signature_of(tool: ListedTool, *, descriptions: bool = False) -> Signature:
    """The signature of a listed tool; descriptions inside its parameters belong to it on request."""
    schema: Mapping[str, Any] = _resolved(tool.parameters, tool.parameters)
    required = schema.get("required", [])
    parameters = {}
    for name, listed in schema.get("properties", {}).items():
        entry = _resolved(listed, schema) if isinstance(listed, dict) else {}
        plain = _plain(listed, schema, descriptions)
        if isinstance(plain, dict):
            plain = {key: value for key, value in plain.items() if key not in ("default", "description")}
        parameters[name] = Parameter(
            schema=plain,
            required=name in required,
            default=_ABSENT if entry.get("default") is None else entry["default"],
            description=_words(entry.get("description", "")),
        )
    return Signature(_words(tool.description), parameters)


def differences(ours: Signature, theirs: Signature, *, descriptions: bool) -> Iterator[str]:
    """Yield what sets two tools of one name apart, one line each: the parameter, the simulation's, and production's."""
    missing = [name for name in theirs.parameters if name not in ours.parameters]
    extra = [name for name in ours.parameters if name not in theirs.parameters]
    for name in missing:
        yield f'parameter "{name}": missing in the simulation'
    for name in extra:
        yield f'parameter "{name}": not in production'
    if not missing and not extra and list(ours.parameters) != list(theirs.parameters):
        yield f"order of parameters: {', '.join(ours.parameters)}; in production {', '.join(theirs.parameters)}"
    for name, parameter in ours.parameters.items():
        if name in theirs.parameters:
            yield from _parameter(name, parameter, theirs.parameters[name], descriptions=descriptions)
    if descriptions and ours.description != theirs.description:
        yield f"description: {ours.description!r}; in production {theirs.description!r}"


def _parameter(name: str, ours: Parameter, theirs: Parameter, *, descriptions: bool) -> Iterator[str]:
    yield from (f'parameter "{name}"{line}' for line in _schemas("", ours.schema, theirs.schema))
    if ours.required != theirs.required:
        words = {True: "required", False: "optional"}
        yield f'parameter "{name}": {words[ours.required]}; in production {words[theirs.required]}'
    if ours.default != theirs.default or type(ours.default) is not type(theirs.default):
        yield f'parameter "{name}": default {ours.default!r}; in production {theirs.default!r}'
    if descriptions and ours.description != theirs.description:
        yield f'parameter "{name}": description {ours.description!r}; in production {theirs.description!r}'


def _schemas(path: str, ours: Any, theirs: Any) -> Iterator[str]:
    """Yield where two schemas differ, as far inside as they can be told apart."""
    if ours == theirs:
        return
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        yield f"{path}: {_shown(ours)}; in production {_shown(theirs)}"
        return
    for key in sorted(ours.keys() | theirs.keys()):
        inside = path if key == "properties" else f"{path}.{key}"
        yield from _schemas(inside, ours.get(key, _ABSENT), theirs.get(key, _ABSENT))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _plain(schema: Any, root: Mapping[str, Any], descriptions: bool, seen: tuple[str, ...] = ()) -> Any:
    """The schema with its references in place, without what says nothing, and in one order."""
    if isinstance(schema, list):
        return [_plain(entry, root, descriptions, seen) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and _target(reference, root) is not None:
        if reference in seen:
            return {"$ref": f"#{len(seen) - seen.index(reference)} up"}  # of a type that holds itself
        return _plain(_resolved(schema, root), root, descriptions, (*seen, reference))
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if _says_nothing(key, value) or (key == "description" and not descriptions):
            continue
        if key in _NAMED and isinstance(value, dict):
            plain[key] = {name: _plain(entry, root, descriptions, seen) for name, entry in value.items()}
        elif key == "description":
            plain[key] = _words(str(value))
        else:
            found = value if key in _VALUES else _plain(value, root, descriptions, seen)
            plain[key] = sorted(found, key=repr) if key in _UNORDERED and isinstance(found, list) else found
    # One of the ways to say a sole value, a choice of plain types, and a schema inside another.
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    if len(plain.get("allOf", ())) == 1:
        plain = {**plain.pop("allOf")[0], **plain}
    choice = plain.get("anyOf")
    if choice and all(set(entry) == {"type"} and isinstance(entry["type"], str) for entry in choice):
        plain["type"] = sorted(entry["type"] for entry in plain.pop("anyOf"))
    return plain


def _says_nothing(key: str, value: Any) -> bool:
    return (
        key in _SILENT
        or (key == "default" and value is None)
        or (key == "additionalProperties" and isinstance(value, bool))
        or (key in _JAVASCRIPT_INTEGERS and _JAVASCRIPT_INTEGERS[key] == value)
    )


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with what it refers to; what it says itself goes before that."""
    rest = dict(schema)
    found = _target(rest["$ref"], root) if isinstance(rest.get("$ref"), str) else None
    if found is None:
        return rest
    del rest["$ref"]
    return {**found, **rest}


def _target(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a JSON pointer of this schema leads to; None for any other reference, which stays as it is
    written."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in filter(None, reference[1:].split("/")):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _words(text: str) -> str:
    return " ".join(text.split())


async def check_parity(simulation: Offering, production: Offering, *, descriptions: bool = False) -> None:
    """Compare the tools of a simulation, which an agent is given in training, with those of the production that it
    stands for: names, and each parameter's name, place, type, default and whether it is required; with `descriptions`,
    also all descriptions.

    A `ToolMismatchError` names the tools on one side only and all other differences, a `SignatureMismatchError` those
    of arguments; a `ValueError` where one side cannot be found, read or asked.
    """
    ours, theirs = await list_tools(simulation), await list_tools(production)
    names, wanted = [tool.name for tool in ours], [tool.name for tool in theirs]
    missing = [name for name in wanted if name not in names]
    extra = [name for name in names if name not in wanted]
    wrong_tools = []
    for name in missing:
        close = get_close_matches(name, extra, 1)
        wrong_tools.append(
            f'tool "{name}": missing in the simulation' + (f' (which has "{close[0]}")' if close else "")
        )
    wrong_tools += [f'tool "{name}": not in production' for name in extra]
    signatures = {tool.name: signature_of(tool, descriptions=descriptions) for tool in theirs}
    wrong_signatures: list[str] = []
    for tool in ours:
        if tool.name in signatures:
            own = signature_of(tool, descriptions=descriptions)
            found = differences(own, signatures[tool.name], descriptions=descriptions)
            wrong_signatures += [f'tool "{tool.name}": {line}' for line in found]
    if not wrong_tools and not wrong_signatures:
        return
    lines = "\n".join(f"  {line}" for line in (*wrong_tools, *wrong_signatures))
    kind = ToolMismatchError if wrong_tools else SignatureMismatchError
    raise kind(f"the simulation is not what production is:\n{lines}")


def require_parity(world: type[World]) -> None:
    """Check a world against the production server that it names, if any, from any thread; raises as `check_parity`."""
    if world.PRODUCTION is None:
        return
    with ThreadPoolExecutor(1) as own_thread:  # a loop cannot be run inside a running one
        own_thread.submit(asyncio.run, check_parity(world, world.PRODUCTION)).result()
