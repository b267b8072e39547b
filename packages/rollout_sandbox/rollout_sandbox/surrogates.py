"""Lone surrogates: JSON can spell one surrogate alone; UTF-8, and with it a trace, a file, a request, cannot.

What leaves this module can be written as UTF-8: two surrogates that belong together become their character, also when
a stream brings them in two pieces; one that is alone becomes U+FFFD.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json
from verifiers.v1.dialects.base import parse_sse_event

_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")

_SURROGATE = re.compile("[\ud800-\udfff]")
_LONE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1

_TextPlace = tuple[dict[str, Any], str]
"""An object of an event and the key of one of its texts."""


def has_lone_surrogate(value: object) -> bool:
    """Whether a text, or one in what is made of mappings and sequences, holds a lone surrogate."""
    if isinstance(value, str):
        return not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, Mapping):
        return any(map(has_lone_surrogate, value.values()))
    return isinstance(value, Sequence) and not isinstance(value, bytes) and any(map(has_lone_surrogate, value))


def may_hold_surrogate(raw: bytes) -> bool:
    """Whether JSON may spell a lone surrogate."""
    return _ESCAPE.search(raw) is not None


def whole_text(text: str) -> str:
    """The text with every surrogate joined to its other half or replaced."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return _LONE.sub("\ufffd", text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def whole_json(value: Any) -> Any:
    """The same JSON value, or anything made of lists and dicts, with whole texts."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list | tuple):
        return type(value)([whole_json(one) for one in value])
    if isinstance(value, dict):
        return {whole_json(key): whole_json(one) for key, one in value.items()}
    return value


def replace_surrogates(model: BaseModel) -> None:
    """Replace lone surrogates in all texts of a model and of what it holds, in place; whole numbers that 64 bits do not
    hold, which traces cannot be sent with, become the nearest that they do. One anywhere in what the agent left (logs,
    tool output, answers, errors) would end the whole evaluation."""
    for fields in (vars(model), model.model_extra or {}):
        for name, value in fields.items():
            whole = _replaced(value)
            if whole is not value:
                fields[name] = whole  # as it is, past validation: the type stays


def _replaced(value: Any) -> Any:
    """The same object if nothing in it had to change, or if it could be changed in place."""
    if isinstance(value, str):
        whole = whole_text(value)
        return value if whole == value else whole
    if isinstance(value, BaseModel):
        replace_surrogates(value)
    elif isinstance(value, dict):
        for key in list(value):
            value[_replaced(key)] = _replaced(value.pop(key))
    elif isinstance(value, int):
        return value if _LEAST <= value <= _MOST else min(max(value, _LEAST), _MOST)
    elif isinstance(value, list) and not _are_sound_numbers(value):
        value[:] = map(_replaced, value)
    elif isinstance(value, tuple):
        return tuple(map(_replaced, value))
    return value


def _are_sound_numbers(values: list[Any]) -> bool:
    """Whether these are numbers that need no change: token ids, logprobs and masks are many, and looked at at once."""
    if not values or not set(map(type, values)) <= {int, float, bool}:
        return False
    return bool(min(values) >= _LEAST and max(values) <= _MOST)


def whole_events(chunks: list[bytes]) -> list[bytes]:
    """The same complete SSE events with whole texts; those that spell no surrogate as they are."""
    first = next((position for position, chunk in enumerate(chunks) if may_hold_surrogate(chunk)), len(chunks))
    return chunks[:first] + list(_whole(chunks[first:]))


def _whole(chunks: list[bytes]) -> Iterator[bytes]:
    events: list[Any] = []
    waiting: dict[tuple[str | int, ...], _TextPlace] = {}
    for chunk in chunks:
        held = may_hold_surrogate(chunk)
        event = _event(chunk) if held else parse_sse_event(chunk) if waiting else None
        events.append(event if held else None)
        for path, (holder, key) in _texts(event, ()):
            text, before = holder[key], waiting.pop(path, None)
            if before is not None and "\udc00" <= text[:1] <= "\udfff":
                holder[key] = text = before[0][before[1]][-1] + text
                before[0][before[1]] = before[0][before[1]][:-1]
            if "\ud800" <= text[-1:] <= "\udbff":
                waiting[path] = (holder, key)
    for chunk, event in zip(chunks, events, strict=True):
        if event is None:
            yield chunk
            continue
        head = [line for line in chunk.splitlines() if line and not line.startswith(b"data:")]
        yield b"\n".join([*head, b"data: " + json.dumps(whole_json(event)).encode(), b"", b""])


def _event(chunk: bytes) -> Any:
    """The data of an event: verifiers' own reader logs each lone surrogate as a failure."""
    lines = [line.removeprefix(b"data:").strip() for line in chunk.splitlines() if line.startswith(b"data:")]
    data = b"\n".join(lines)
    try:
        return from_json(data) if data else None
    except ValueError:
        return json.loads(data.decode(errors="replace"))


def _texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], _TextPlace]]:
    """Every text that is not empty in an event, by its path; entries of a list by their own index if they have one."""
    if isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, str) and one:
                yield (*path, key), (value, key)
            else:
                yield from _texts(one, (*path, key))
    elif isinstance(value, list):
        for position, one in enumerate(value):
            index = one.get("index", position) if isinstance(one, dict) else position
            yield from _texts(one, (*path, index if isinstance(index, int) else position))
