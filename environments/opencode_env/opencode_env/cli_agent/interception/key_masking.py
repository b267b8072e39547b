"""Lets no API key through to the agent, in an answer, a stream or the text of an error: some endpoints repeat the key
that they were called with."""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import httpx
from verifiers.v1.configs.client import BaseClientConfig, resolve_api_key, resolve_headers

_MASK = "[key]"
_SHORTEST = 12
"""Characters; shorter values are words such as `EMPTY`, which answers may hold."""

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|AUTHORIZATION|COOKIE)$")
_TEXT = re.compile(
    rb'"(content|reasoning_content|reasoning|refusal|text|delta|thinking|name|arguments|partial_json)"\s*:\s*"'
)
_STRING_END = re.compile(rb'(?:[^"\\]|\\.)*')


def keys_of(config: BaseClientConfig) -> frozenset[str]:
    """Return what must not reach an agent: the endpoint's key, secret headers and what its URL holds of that kind,
    every key in this process's environment."""
    url = httpx.URL(config.base_url)
    named = {**os.environ, **resolve_headers(config), **url.params, "PASSWORD": url.password}
    found = {value.removeprefix("Bearer ") for name, value in named.items() if _SECRET_NAME.search(name.upper())}
    found |= {resolve_api_key(config), *(os.environ.get(name, "") for name in config.headers_from_env.values())}
    return frozenset(key for key in found if len(key) >= _SHORTEST and not re.search(r"\s", key))


class Masking:
    """Takes keys out of texts, JSON and streams."""

    def __init__(self, keys: Iterable[str]) -> None:
        longest_first = [re.escape(key) for key in sorted(keys, key=len, reverse=True)]
        pattern = "|".join(longest_first) or r"(?!)"
        self._text = re.compile(pattern)
        # JSON may write a slash with a backslash before it.
        self._bytes = re.compile(pattern.replace("/", r"\\?/").encode("utf-8", "surrogateescape"))

    def text(self, value: str) -> str:
        """A text without keys."""
        return self._text.sub(_MASK, value)

    def data(self, value: bytes) -> bytes:
        """Bytes without keys."""
        return self._bytes.sub(_MASK.encode(), value)

    def json(self, value: Any) -> Any:
        """JSON without keys; the same object when it holds none."""
        if isinstance(value, str):
            return self.text(value) if self._text.search(value) else value
        if isinstance(value, list):
            entries = [self.json(one) for one in value]
            return entries if any(new is not old for new, old in zip(entries, value, strict=True)) else value
        if isinstance(value, dict):
            pairs = {self.json(key): self.json(one) for key, one in value.items()}
            changed = pairs.keys() != value.keys() or any(pairs[key] is not value[key] for key in value)
            return pairs if changed else value
        return value

    def stream(self, events: list[bytes]) -> list[bytes]:
        """The events of a stream without keys, those included that are spelled over several events."""
        events = [self.data(event) for event in events]
        spoken: dict[bytes, list[tuple[int, int, bytes]]] = {}
        for number, event in enumerate(events):
            for found in _TEXT.finditer(event):
                end = _STRING_END.match(event, found.end())
                assert end is not None
                spoken.setdefault(found[1], []).append((number, found.end(), end[0]))
        edits: dict[int, bytearray] = {}
        for pieces in spoken.values():
            begins = [0, *accumulate(len(piece) for _, _, piece in pieces)]
            for match in self._bytes.finditer(b"".join(piece for _, _, piece in pieces)):
                for at in range(bisect_right(begins, match.start()) - 1, bisect_left(begins, match.end())):
                    number, start, piece = pieces[at]
                    low, high = max(match.start() - begins[at], 0), min(match.end() - begins[at], len(piece))
                    if low < high:
                        edited = edits.setdefault(number, bytearray(events[number]))
                        edited[start + low : start + high] = b"*" * (high - low)  # same length: positions stay
        for number, edited in edits.items():
            events[number] = bytes(edited)
        return events

    def error(self, error: Exception) -> None:
        """Take keys out of the text of an error."""
        error.args = tuple(self.text(part) if isinstance(part, str) else part for part in error.args)
