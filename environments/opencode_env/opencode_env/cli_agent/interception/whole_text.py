"""Halves of characters in what a model says: JSON can spell them, UTF-8, and with it a trace, cannot.

Invariant: what leaves this module can be written as UTF-8. Two halves that belong together become their character, also
when a stream brings them in two pieces; one that is alone becomes U+FFFD, as in every program that reads it.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from verifiers.v1.dialects.base import parse_sse_event

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

Place = tuple[dict[str, Any], str]
"""An object of an event and the key of one of its texts."""


def holds_half(raw: bytes) -> bool:
    """Whether JSON may spell a half of a character."""
    return _HALF.search(raw) is not None


def whole_text(text: str) -> str:
    """The text with every half of a character joined to its other half or replaced."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_json(value: Any) -> Any:
    """The same JSON value, or anything made of lists and dicts, with whole texts."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list | tuple):
        return type(value)([whole_json(one) for one in value])
    if isinstance(value, dict):
        return {whole_json(key): whole_json(one) for key, one in value.items()}
    return value


async def whole_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same complete SSE events with whole texts; from the first half of a character on they come at the end."""
    held: list[bytes] = []
    async for chunk in chunks:
        if held or holds_half(chunk):
            held.append(chunk)
        else:
            yield chunk
    for chunk in _mended(held):
        yield chunk


def _mended(chunks: list[bytes]) -> Iterator[bytes]:
    events = [parse_sse_event(chunk) if b"data:" in chunk else None for chunk in chunks]
    waiting: dict[tuple[str | int, ...], Place] = {}
    for event in events:
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


def _texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Place]]:
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
