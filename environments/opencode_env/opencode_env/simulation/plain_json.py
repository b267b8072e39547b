"""What a world is given and what it gives, as JSON that whoever reads it later can read.

Invariant: whatever passes here can be written to the environment, put on a trace and read again. Parsers of JSON refuse
what is nested too deep: one such line would end a server that other rollouts share. Whole numbers have 64 bits, as an
env server can send no others.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json, to_jsonable_python

from opencode_env.simulation.errors import InvalidAction

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1

_AROUND = 20
"""Levels of nesting that the wire and the trace put around a value."""

_ECHO = 80
"""Further levels that a world may put around what it was given."""


def given_arguments(arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
    """What an agent gave, before a tool can change it.

    Raises:
        InvalidAction: it holds what JSON cannot say, such as NaN, or is nested so deep that a world which shows it
            again would seem to fail.
    """
    try:
        return {name: _checked(value, _AROUND + _ECHO) for name, value in arguments.items()}
    except ValueError as error:
        raise InvalidAction(f"the arguments are not JSON: {error}") from None


def world_json(value: Any, what: str) -> JsonValue:
    """What a world gave; `what` names it.

    Raises:
        TypeError: it is not JSON.
    """
    try:
        return _checked(value, _AROUND)
    except ValueError as error:
        raise TypeError(f"{what} is not JSON: {error}") from error


def _sendable(digits: str) -> None:
    if not MIN_INTEGER <= int(digits) <= MAX_INTEGER:
        raise ValueError("a whole number has more than 64 bits")


_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_int=_sendable)


def _checked(value: Any, around: int) -> JsonValue:
    if type(value) is str and value.isascii():
        return value
    try:
        plain: JsonValue = to_jsonable_python(value)
        text = _ENCODER.encode(plain)
        from_json(b"[" * around + text.encode() + b"]" * around)
        _DECODER.decode(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return plain
