"""A policy that calls any tool, with arguments by chance that the JSON schema of its parameters allows."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from opencode_env.scripted_model.policy import LABEL, ChatRequest, Reply, ToolCall

Schema = Mapping[str, Any]

_DEEPEST = 6
"""Levels of nesting below which only what must be there is made."""
_WORDS = ("apple", "blue", "one", "north", "note", "river")
_FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "PT5M",
    "email": "ada@example.com",
    "uri": "https://example.com/a",
    "uuid": "5f0c1c2e-8f0b-4b7e-9d54-0d2f6c1a7e11",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
}
_RANGE = 20
"""Numbers without bounds are from 0 to this."""


def value_of(schema: Any, source: random.Random, root: Schema | None = None, depth: int = 0) -> Any:
    """One value; words of a schema that describe few tools (`pattern`, `multipleOf`, `not`, …) are ignored."""
    if not isinstance(schema, Mapping):
        return source.choice(_WORDS)  # true: anything will do
    root = schema if root is None else root
    schema = _whole(schema, root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return source.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if choices := schema.get(key):
            rest = {name: value for name, value in schema.items() if name != key}
            chosen = source.choice(choices) if depth < _DEEPEST else min(choices, key=_weight)
            return value_of(_merged(rest, _whole(chosen, root)), source, root, depth)
    kind = schema.get("type") or _kind_of(schema)
    if isinstance(kind, list):
        kind = source.choice(kind)
    match kind:
        case "object":
            return _object(schema, source, root, depth)
        case "array":
            return _array(schema, source, root, depth)
        case "integer" | "number":
            return _number(schema, source, whole=kind == "integer")
        case "boolean":
            return source.random() < 1 / 2
        case "null":
            return None
    return _text(schema, source)


def _whole(schema: Any, root: Schema) -> Schema:
    """The schema with what it refers to and all that it must also be."""
    found: Schema = schema if isinstance(schema, Mapping) else {}
    seen = set()
    while isinstance(reference := found.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        target: Any = root
        for part in filter(None, reference.lstrip("#").split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name, {}) if isinstance(target, Mapping) else {}
        found = _merged({name: value for name, value in found.items() if name != "$ref"}, target)
    for part in found.get("allOf", ()):
        found = _merged(found, _whole(part, root))
    return found


def _merged(first: Schema, second: Schema) -> Schema:
    properties = {**second.get("properties", {}), **first.get("properties", {})}
    required = list(dict.fromkeys([*first.get("required", ()), *second.get("required", ())]))
    return {
        **second,
        **first,
        **({"properties": properties} if properties else {}),
        **({"required": required} if required else {}),
    }


def _weight(schema: Any) -> int:
    """How much a choice holds, so that a type that holds itself comes to an end."""
    return len(str(schema)) + 1000 * any(word in str(schema) for word in ("$ref", "object", "array"))


def _kind_of(schema: Schema) -> str:
    kinds = {"object": ("properties", "required"), "array": ("items", "prefixItems", "minItems")}
    return next((kind for kind, words in kinds.items() if schema.keys() & set(words)), "string")


def _object(schema: Schema, source: random.Random, root: Schema, depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    names = [name for name in properties if name in required or (depth < _DEEPEST and source.random() < 1 / 2)]
    names += [name for name in required if name not in properties]
    more = schema.get("additionalProperties")
    return {name: value_of(properties.get(name, more), source, root, depth + 1) for name in names}


def _array(schema: Schema, source: random.Random, root: Schema, depth: int) -> list[Any]:
    first = schema.get("prefixItems", [])
    least = max(schema.get("minItems", 0), 0)
    most = min(schema.get("maxItems", least + 2), least + 2) if depth < _DEEPEST else least
    made = [value_of(item, source, root, depth + 1) for item in first]
    count = max(source.randint(least, max(least, most)), len(made) if "minItems" in schema else 0)
    items = schema.get("items")
    for _ in range(20 * (count + 1)):
        if len(made) >= count or items is False:
            break
        value = value_of(items, source, root, depth + 1)
        if not schema.get("uniqueItems") or value not in made:
            made.append(value)
    return made


def _number(schema: Schema, source: random.Random, *, whole: bool) -> float:
    lows = [schema[name] for name in ("minimum", "exclusiveMinimum") if name in schema]
    tops = [schema[name] for name in ("maximum", "exclusiveMaximum") if name in schema]
    low = max(lows) if lows else min([0, *(top - _RANGE for top in tops)])
    top = min(tops) if tops else low + _RANGE
    if not whole:
        return float(low + (top - low) * source.choice((0.25, 0.5, 0.75)))
    first, last = math.ceil(low), math.floor(top)
    first += first == schema.get("exclusiveMinimum")
    last -= last == schema.get("exclusiveMaximum")
    return source.randint(first, max(first, min(last, first + _RANGE)))


def _text(schema: Schema, source: random.Random) -> str:
    word = _FORMATS.get(schema.get("format", "")) or source.choice(_WORDS)
    return word.ljust(schema.get("minLength", 0), "a")[: schema.get("maxLength")]


@dataclass(frozen=True)
class ToolsPolicy:
    """Calls one offered tool a turn, chosen with its arguments by chance, and stops after `turns`.

    The same prompt, turn and seed give the same call.
    """

    tools: str = "*"
    """Pattern of the names of the tools that are called, as of a shell: `shop_*`."""
    turns: int = 10
    """How many calls a conversation has."""
    seed: int = 0
    """Another seed, other calls."""

    def __call__(self, request: ChatRequest, /) -> Reply:
        names = [name for name in request.tools if fnmatchcase(name, self.tools)]
        if not names:
            return Reply(text=f"This is a {LABEL}; none of the tools that it was offered is like {self.tools!r}.")
        if request.turn >= self.turns:
            return Reply(text=f"I have called {request.turn} tools.")
        source = random.Random(f"{self.seed} {request.turn} {request.prompt}")
        name = source.choice(names)
        arguments = value_of({"type": "object", **request.tool_parameters[name]}, source)
        return Reply(text=f"I call {name}.", tool_calls=(ToolCall(name=name, arguments=arguments),))
