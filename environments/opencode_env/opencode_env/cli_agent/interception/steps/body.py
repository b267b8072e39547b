"""What a request says: its body and headers, read within the bounds and without what does not go upstream.

Invariant: what no provider would take never reaches the engine, and the serving thread is never held up by a body that
a bound refuses; what may hold too many values is looked at elsewhere, in pieces, before it is parsed.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from aiohttp import web
from pydantic_core import from_json, to_json
from rollout_sandbox.surrogates import whole_json

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.config import GatewayConfig
from opencode_env.cli_agent.interception.gateway import RECORD, REPEATED
from opencode_env.cli_agent.interception.own_calls import MARK_HEADER
from opencode_env.cli_agent.interception.refusals import RequestRefused
from opencode_env.cli_agent.interception.request_filter import filter_body, filter_headers, routed_headers
from opencode_env.cli_agent.interception.request_rules import RESPONSES

_MARK = MARK_HEADER.lower()
_PIECE, _LOOKED_AT = 1 << 20, 1 << 18
_COMMA, _BRACE = ord(","), ord("{")
_BRACKET_TO_BRACE = ord("[") ^ ord("{")
_SURROGATE = re.compile("hex escape|surrogate")
LISTS = ("messages", "input", "tools")
"""Keys whose lists cost time by entry, whatever stands in them."""


async def require_text(call: Call) -> None:
    """Refuse headers that no program could pass on; the mark is not passed on.

    Raises:
        RequestRefused: one is not UTF-8.
    """
    headers = call.request.headers.items()
    try:
        "".join([name + value for name, value in headers if name.lower() != _MARK]).encode()
    except UnicodeEncodeError:
        raise RequestRefused("a header is not UTF-8") from None


async def require_format(call: Call) -> None:
    """Refuse a wire format that the rollout's agent does not speak.

    Raises:
        RequestRefused: it does not.
    """
    gateway, path = call.gateway, call.dialect.upstream_path
    if gateway.config.filter_requests:
        if not gateway.rules.formats:  # the first call comes before any program of the agent can have run
            gateway.rules = replace(gateway.rules, formats=frozenset({path}))
        if path not in gateway.rules.formats:
            raise RequestRefused(f"{call.dialect.routes[0]} is not served here", 404)


async def read(call: Call) -> None:
    """Read the body. Changes `body` and `server_body`; what it costs is charged in any case.

    Raises:
        RequestRefused: it exceeds a bound, or is not a request that a provider takes.
        ConnectionError: the caller left.
    """
    config, entries = call.gateway.config, 0
    again = call.session is not None and f"explicit:{call.key}" in call.session.idempotent_requests
    if call.key and again and not call.gateway.main.released:
        record = call.gateway.main.trace.info.setdefault(RECORD, {})
        record[REPEATED] = record.get(REPEATED, 0) + 1
    try:
        raw = await read_body(call.request, config)
        raw, call.body = await parse_body(raw, config)
        require_conversation(call.body, call.dialect.upstream_path)
        entries = sum(len(call.body[key]) for key in LISTS if isinstance(call.body.get(key), list))
        changed = [config.filter_requests and _filter(call), _hold_beginning(call)]
        whole = to_json(call.body) if any(changed) else raw
        # Python's hash of bytes is keyed by process, so nobody can make two bodies collide.
        call.server_body = b'"%d bytes: %d"' % (len(whole), hash(whole))
    finally:
        call.gateway.cpu.charge(call.request.content.total_bytes, entries)


async def read_json(call: Call) -> None:
    """Read the body of a request that asks nothing of the endpoint. Changes `server_body`: it is the body.

    Raises:
        RequestRefused: it exceeds a bound, or is not a JSON object.
        ConnectionError: the caller left.
    """
    gateway = call.gateway
    try:
        call.server_body, _ = await parse_body(await read_body(call.request, gateway.config), gateway.config)
    finally:
        gateway.cpu.charge(call.request.content.total_bytes, 0)


def _filter(call: Call) -> Sequence[str]:
    """Take out of the body what does not go upstream; returns the paths of what was taken."""
    declared, _ = call.gateway.offered.get(call.sub is None, ({}, None))
    if dropped := filter_body(call.body, call.dialect, call.gateway.rules, declared.get("tools")):
        call.gateway.note("dropped", dropped)
    return dropped


def _hold_beginning(call: Call) -> bool:
    """Let the call go on with what its conversation began with; returns whether it would not have."""
    main = call.session is not None and call.sub is None
    if not main or not call.is_chat or call.conversation is None or not call.caller.run:
        return False
    agent = (call.key or "").partition(":")[2]
    return call.gateway.beginnings.hold(call.body, call.conversation, agent)


async def choose_headers(call: Call) -> None:
    """Choose the headers that go on. Changes `headers`."""
    gateway = call.gateway
    call.headers = routed_headers(call.request.headers, gateway.secret)
    if gateway.config.filter_headers:
        call.headers = filter_headers(call.headers, call.dialect.upstream_path, gateway.rules)


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
