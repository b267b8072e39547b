"""What a world is given and what it gives, as JSON that can be sent, put on a trace and read again.

Parsers of JSON refuse what is nested too deep: one such line would end a server that other rollouts share. Whole
numbers have 64 bits, as an env server can send no others.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json, to_jsonable_python

from opencode_simulation.errors import InvalidAction

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
_DATA_URL = re.compile(r"\s*+(!\[[^\]]*+\]\(<?)?data:(image|audio|video)/[\w.+-]+(;[\w.+=-]+)*;base64,", re.IGNORECASE)
_MEDIA = ("image", "audio", "video", "image_url", "input_image", "input_audio")
_ENCODED = ("data", "blob", "base64", "bytes")
_CONTENTS = (*_ENCODED, "image_url", "input_audio", "source")
_TYPED = ("mimeType", "mime_type", "media_type")
_MEDIA_TYPE = re.compile(r"(image|audio|video)/", re.IGNORECASE)
_AROUND = 20
"""Levels of nesting that the wire and the trace put around a value."""
_ECHO = 80
"""Further levels that a world may put around what it was given."""


def given_arguments(arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return what an agent gave, before a tool can change it; an `InvalidAction` where JSON cannot say it, as NaN, or a
    world which shows it again would seem to fail: it is nested deep, or holds a picture."""
    try:
        given = {name: _checked(value, _AROUND + _ECHO) for name, value in arguments.items()}
    except ValueError as error:
        raise InvalidAction(f"the arguments are not JSON: {error}") from None
    if any(map(_holds_media, given.values())):
        raise InvalidAction("the arguments hold a picture or a sound, and only text is taken here")
    return given


def world_json(value: Any, what: str) -> JsonValue:
    """Return what a world gave; a `TypeError` with the name `what` where it is not JSON."""
    try:
        return _checked(value, _AROUND)
    except ValueError as error:
        raise TypeError(f"{what} is not JSON: {error}") from error


def observation_json(value: Any) -> JsonValue:
    """Return what an agent is shown: JSON without pictures or sounds, which it would read as base64; else a
    `TypeError`."""
    shown = world_json(value, "the observation")
    if _holds_media(shown):
        raise TypeError("the observation holds a picture or a sound, and agents see text: say what is to be seen")
    return shown


def text_of(observation: JsonValue) -> str:
    return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False)


def _holds_media(value: JsonValue) -> bool:
    """Whether somewhere in it is media as MCP, OpenAI or Anthropic write them."""
    if isinstance(value, str):
        return _DATA_URL.match(value) is not None
    if isinstance(value, list):
        return any(map(_holds_media, value))
    if not isinstance(value, dict):
        return False
    if value.get("type") in _MEDIA and any(isinstance(value.get(key), str | dict) for key in _CONTENTS):
        return True
    resource = value.get("resource")
    if value.get("type") == "resource" and isinstance(resource, dict) and "blob" in resource:
        return True
    typed = any(_MEDIA_TYPE.match(str(value.get(key, ""))) for key in _TYPED)
    if typed and any(isinstance(value.get(key), str) for key in _ENCODED):
        return True
    return any(map(_holds_media, value.values()))


def _is_sendable(plain: JsonValue) -> bool:
    if isinstance(plain, int):
        return MIN_INTEGER <= plain <= MAX_INTEGER
    if isinstance(plain, list):
        return all(map(_is_sendable, plain))
    return not isinstance(plain, dict) or all(map(_is_sendable, plain.values()))


_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)


def _checked(value: Any, around: int) -> JsonValue:
    try:
        if type(value) is str:
            value.encode()  # JSON of one text says what UTF-8 can
            return value
        plain: JsonValue = to_jsonable_python(value)
        text = _ENCODER.encode(plain)
        from_json(b"[" * around + text.encode() + b"]" * around)
        if not _is_sendable(plain):
            raise ValueError("a whole number has more than 64 bits")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return plain
