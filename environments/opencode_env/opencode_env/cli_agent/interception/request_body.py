"""One request's body, read and parsed within bounds: what no provider would take never reaches the engine.

Invariant: the serving thread is never held up by a body that a bound refuses; what may hold too many values is looked
at elsewhere, in pieces, before it is parsed.
"""

import asyncio
import json
import re
from typing import Any

import numpy as np
from agent_sandbox.surrogates import whole_json
from aiohttp import web
from pydantic_core import from_json, to_json

from opencode_env.cli_agent.interception.config import GatewayConfig
from opencode_env.cli_agent.interception.refusals import RequestRefused
from opencode_env.cli_agent.interception.request_rules import RESPONSES

_PIECE, _LOOKED_AT = 1 << 20, 1 << 18
_COMMA, _BRACE = ord(","), ord("{")
_BRACKET_TO_BRACE = ord("[") ^ ord("{")
_SURROGATE = re.compile("hex escape|surrogate")
LISTS = ("messages", "input", "tools")
"""Keys whose lists cost time by entry, whatever stands in them."""


def identity_of(raw: bytes) -> bytes:
    """JSON that differs between bodies that differ."""
    # Python's hash of bytes is keyed by process, so nobody can make two bodies collide.
    return b'"%d bytes: %d"' % (len(raw), hash(raw))


async def read_body(request: web.Request, bounds: GatewayConfig) -> bytes:
    """The bytes of a request's body, unpacked.

    Raises:
        RequestRefused: it is too large, or stopped coming.
        ConnectionError: the caller left.
    """
    too_large = RequestRefused(f"the request is larger than {bounds.max_body} bytes", 413)
    if bounds.max_body is not None and (request.content_length or 0) > bounds.max_body:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    while True:
        try:
            if request.content.is_eof():  # all of it is here: nothing to wait for, and no timer to set
                chunk = request.content.read_nowait()
            else:
                async with asyncio.timeout(bounds.idle_timeout):
                    chunk = await request.content.readany()
        except TimeoutError:
            raise RequestRefused("the rest of the request did not come", 408) from None
        except (ValueError, web.RequestPayloadError) as error:  # what says to be packed, or in pieces, and is not
            raise RequestRefused(f"the request cannot be unpacked: {error}") from None
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
        if bounds.max_body is not None and size > bounds.max_body:
            raise too_large


async def parse_body(raw: bytes, bounds: GatewayConfig) -> tuple[bytes, dict[str, Any]]:
    """A body as the engine will read it, and what it says.

    Raises:
        RequestRefused: it is not a JSON object, or exceeds a bound.
    """
    # A value takes a byte at least, so a short body cannot hold too many.
    limit = bounds.max_values
    may_exceed = limit is not None and len(raw) > limit and _openers(raw) > limit
    if limit is not None and may_exceed and await asyncio.to_thread(_holds_more_values, raw, limit):
        raise RequestRefused(f"the request holds more than {limit} JSON values")
    raw, body = _parsed(raw)
    if not isinstance(body, dict):
        raise RequestRefused("the request must be a JSON object")
    may_nest = bounds.max_depth is not None and raw.count(b"[") + raw.count(b"{") > bounds.max_depth
    if bounds.max_depth is not None and may_nest and _deeper_than(body, bounds.max_depth):
        raise RequestRefused(f"the request nests deeper than {bounds.max_depth}")
    for key in LISTS:
        entries = body.get(key)
        if bounds.max_messages is not None and isinstance(entries, list) and len(entries) > bounds.max_messages:
            raise RequestRefused(f"the request holds more than {bounds.max_messages} {key}")
    return raw, body


def require_conversation(body: dict[str, Any], wire_format: str) -> None:
    """Refuse a request that says nothing, or lists what are not objects, as every provider does.

    Raises:
        RequestRefused: what is wrong.
    """
    if wire_format != RESPONSES and not body.get("messages"):
        raise RequestRefused("messages must hold at least one message")
    for key in ("messages", "tools"):
        entries = body.get(key)
        if entries is not None and not (isinstance(entries, list) and all(isinstance(one, dict) for one in entries)):
            raise RequestRefused(f"{key} must be a list of objects")


def _parsed(raw: bytes) -> tuple[bytes, Any]:
    try:
        return raw, from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        if _SURROGATE.search(str(error)) is None:
            raise RequestRefused(f"the request is not valid JSON: {error}") from None
    # A lone surrogate, as JavaScript leaves where it cuts a text: providers differ, the engine fails on it.
    try:
        repaired = whole_json(json.loads(raw, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the request is not valid JSON: {error}") from None
    return to_json(repaired), repaired


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _holds_more_values(raw: bytes, limit: int) -> bool:
    """Whether a body holds more JSON values than that; runs beside the loop and lets it go on between the pieces."""
    found = quotes = 0
    rest = b""
    for start in range(0, len(raw), _PIECE):  # strings hold commas and brackets of their own
        piece = rest + raw[start : start + _PIECE]
        rest = b"\\" if (len(piece) - len(piece.rstrip(b"\\"))) % 2 else b""
        piece = piece.removesuffix(rest).replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        found += _openers(b"".join(parts[quotes % 2 :: 2]))
        quotes += len(parts) - 1
        if found > limit or quotes > 4 * limit:  # two to a string, a key and a value to an entry
            return True
    return False


def _openers(raw: bytes) -> int:
    """How many commas, brackets and braces stand in bytes: each brings a value at most, outside of strings."""
    found = 0
    for start in range(0, len(raw), _LOOKED_AT):  # what fits into the processor's cache is looked at much faster
        part = np.frombuffer(raw, np.uint8, min(_LOOKED_AT, len(raw) - start), start)
        found += int(np.count_nonzero(part == _COMMA) + np.count_nonzero(part | _BRACKET_TO_BRACE == _BRACE))
    return found


_HOLDERS = frozenset({dict, list})


def _deeper_than(value: object, depth: int) -> bool:
    level: list[Any] = [value]
    for _ in range(depth):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) in _HOLDERS
        ]
        if not level:
            return False
    return True
