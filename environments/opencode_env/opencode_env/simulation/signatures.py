"""What a tool takes, as it matters to who calls it: spellings of one schema that mean the same are made one.

Invariant: two signatures are equal exactly when a call that is right for one tool is right for the other and means the
same there. Titles, `$schema`, where a nested schema is defined, a default of null (left out), and that further keys
are refused say nothing about a right call.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opencode_env.simulation.listing import ListedTool

ABSENT = "(none)"

_SILENT = ("title", "$schema", "$defs", "definitions", "description", "examples")
_UNORDERED = ("required", "enum", "type", "anyOf", "oneOf")
_JAVASCRIPT_INTEGERS = {"minimum": -(2**53 - 1), "maximum": 2**53 - 1}


@dataclass(frozen=True)
class Parameter:
    """One parameter."""

    schema: Any
    required: bool
    default: Any
    description: str


@dataclass(frozen=True)
class Signature:
    """One tool."""

    description: str
    parameters: Mapping[str, Parameter]
    """In the order in which they are listed."""


def signature_of(tool: ListedTool) -> Signature:
    """The signature of a listed tool."""
    schema: Mapping[str, Any] = tool.parameters
    required = schema.get("required", [])
    listed: Mapping[str, Any] = schema.get("properties", {})
    parameters = {
        name: Parameter(
            schema=_plain({key: value for key, value in entry.items() if key != "default"}, schema),
            required=name in required,
            default=ABSENT if entry.get("default") is None else entry["default"],
            description=_words({**_target(entry.get("$ref"), schema), **entry}.get("description", "")),
        )
        for name, entry in listed.items()
    }
    return Signature(_words(tool.description), parameters)


def differences(ours: Signature, theirs: Signature, *, descriptions: bool) -> Iterator[str]:
    """What sets two tools of one name apart, one line each: the parameter, the simulation's, and production's."""
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
    """Where two schemas differ, as far inside as they can be told apart."""
    if ours == theirs:
        return
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        yield f"{path}: {_shown(ours)}; in production {_shown(theirs)}"
        return
    for key in sorted(ours.keys() | theirs.keys()):
        inside = path if key == "properties" else f"{path}.{key}"
        yield from _schemas(inside, ours.get(key, ABSENT), theirs.get(key, ABSENT))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _plain(schema: Any, root: Mapping[str, Any], seen: tuple[str, ...] = ()) -> Any:
    """The schema with its references in place, without what says nothing, and in one order."""
    if isinstance(schema, list):
        return [_plain(entry, root, seen) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return {"$ref": f"#{len(seen) - seen.index(reference)} up"}  # of a type that holds itself
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _plain({**_target(reference, root), **rest}, root, (*seen, reference))
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SILENT or (key == "default" and value is None):
            continue
        if key == "additionalProperties" and value in (False, True):
            continue
        if _JAVASCRIPT_INTEGERS.get(key) == value:
            continue
        if key == "properties":
            plain[key] = {name: _plain(entry, root, seen) for name, entry in value.items()}
        else:
            found = _plain(value, root, seen)
            unordered = key in _UNORDERED and isinstance(found, list)
            plain[key] = sorted(found, key=repr) if unordered else found
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    return plain


def _target(reference: str | None, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if reference is None:
        return {}
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _words(text: str) -> str:
    return " ".join(text.split())
