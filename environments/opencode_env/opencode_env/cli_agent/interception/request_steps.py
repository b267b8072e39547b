"""The steps of a request: who makes it, which of its rollout's sessions serves it, what of it goes upstream, and its
place and history among the rollout's other calls.

A step that refuses a request raises `RequestRefused`; one that has answered it raises `CallAnswered`. What no provider
would take never reaches the engine. What is left out of a request is left out silently for the caller and counted by
its path; what would change the meaning of the conversation is refused instead.
"""

import asyncio
import json
import logging
import re
from dataclasses import replace
from typing import Any

import numpy as np
from aiohttp import web
from pydantic_core import from_json, to_json
from rollout_sandbox.surrogates import whole_json
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.dialects import Dialect
from verifiers.v1.errors import ProviderError
from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER, RETRY_COUNT_HEADER, is_retried_request
from verifiers.v1.semantic import ACP_EXTENSION_HEADERS

from opencode_env.cli_agent.interception.call_limits import is_gone
from opencode_env.cli_agent.interception.callers import (
    MARK_HEADER,
    SUMMARY_SEAT,
    Routing,
    note_program_call,
    read_routing,
)
from opencode_env.cli_agent.interception.gateway import (
    CHAT,
    CHAT_MESSAGE_KEYS,
    GATEWAY_RECORD,
    HEADERS,
    KEYS,
    REPEATED,
    RESPONSES,
    Call,
    CallAnswered,
    ModelRequests,
    error_answer,
)
from opencode_env.errors import RequestRefused, RoleRefused

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

MAX_OPEN = 1024
"""Requests of one rollout that are open at once, waiting ones included; more are answered 429."""

MAX_MESSAGES = 5000
"""Messages, and tools, of one request; more is answered 400."""

MAX_VALUES = 100_000
"""JSON values of one request (every number, string, list and object counts one); more is answered 400. A body of the
largest size that holds more takes up to ten seconds to parse."""

MAX_BODY_DEPTH = 100
"""How deep lists and objects of a request may nest; deeper is answered 400. The parser's own limit is 200."""

BODY_IDLE_SECONDS = 300.0
"""After which a request is answered 408 when no further byte of its body came, and a connection that carries no request
is closed."""


async def identify_caller(call: Call) -> None:
    """Tell the agent's own program from the programs that it started. Needs the headers; changes `caller`, `key` and
    `conversation`. A failed call of a program is not left where verifiers looks for what ended the agent, and what it
    says of its conversation counts for nothing."""
    headers, main, echoes = call.request.headers, call.gateway.main, call.gateway.echoes
    call.caller = call.gateway.program.identify(headers.get(MARK_HEADER))
    call.key = headers.get(IDEMPOTENCY_KEY_HEADER)
    if call.caller.own and echoes is not None:
        call.conversation = headers.get(echoes.conversation_header)
    before = main.error

    def leave_no_failure() -> None:
        if not call.gateway.program.is_own(call.caller):
            main.error = before

    call.until_end.callback(leave_no_failure)


async def open_request(call: Call) -> None:
    """Take the request up, if not too many are open, once its rollout has worked off its use of the serving thread."""
    gateway = call.gateway
    if gateway.open >= MAX_OPEN:
        raise RequestRefused(f"more than {MAX_OPEN} requests of this rollout are open", 429)
    gateway.open += 1

    def close() -> None:
        gateway.open -= 1

    call.until_end.callback(close)
    await gateway.cpu.wait()


async def require_text(call: Call) -> None:
    """Refuse headers that are not UTF-8, which no program could pass on; the mark is not passed on."""
    headers = call.request.headers.items()
    try:
        "".join([name + value for name, value in headers if name.lower() != _MARK]).encode()
    except UnicodeEncodeError:
        raise RequestRefused("a header is not UTF-8") from None


_MARK = MARK_HEADER.lower()


async def choose_seat(call: Call) -> None:
    """Find the session of a model call; a sub call waits for its place. Changes `session`, `sub` and `bearer`."""
    gateway, side = call.gateway, call.gateway.side
    routing = _routing_of(call)
    if side is None or not routing.sub:
        if side is not None and (error := side.check_main(routing)) is not None:
            gateway.main.error = error
            raise CallAnswered(error_answer(call.dialect, str(error), 400))
        call.session, call.bearer = gateway.main, gateway.secret
        return
    if routing.depth > side.settings.max_depth:
        gateway.cpu.charge_refusal()
        problem = "this sub-agent is nested deeper than max_depth allows"
        raise CallAnswered(error_answer(call.dialect, str(side.session.refusal(problem)), 400))
    if not await side.slots.place(call.until_end):
        raise CallAnswered(error_answer(call.dialect, "the rollout has ended", 409))
    if is_gone(call.request):
        raise CallAnswered(web.Response(status=499))
    call.session, call.sub, call.bearer = side.session, side, gateway.sub_bearer


async def choose_side(call: Call) -> None:
    """Find whose endpoint a request is for that is not a model call. Changes `bearer`."""
    gateway = call.gateway
    call.bearer = gateway.sub_bearer if _routing_of(call).sub else gateway.secret


def _routing_of(call: Call) -> Routing:
    """The request's routing headers; those that mean nothing are recorded."""
    gateway = call.gateway
    if gateway.side is None:
        return Routing()
    try:
        return read_routing(call.request)
    except RoleRefused as error:
        gateway.cpu.charge_refusal()
        if gateway.side.note_bad_role(str(error)):
            logger.warning("refused a model call: id=%s %s", gateway.main.trace.id, error)
        raise CallAnswered(error_answer(call.dialect, str(error), 400)) from None


async def wait_aside(call: Call) -> None:
    """Wait for one of the rollout's few places for requests that are not model calls."""
    await call.gateway.aside.acquire()
    call.until_end.callback(call.gateway.aside.release)


async def count_as_load(call: Call) -> None:
    """Count the request as a program's, where those are known: the agent's own makes model calls only."""
    if call.gateway.program.is_known:
        call.until_end.enter_context(call.gateway.load.carrying())


async def require_format(call: Call) -> None:
    """Refuse a wire format that the rollout's agent does not speak."""
    gateway, path = call.gateway, call.dialect.upstream_path
    if gateway.config.filter_requests:
        if not gateway.rules.formats:  # the first call comes before any program of the agent can have run
            gateway.rules = replace(gateway.rules, formats=frozenset({path}))
        if path not in gateway.rules.formats:
            raise RequestRefused(f"{call.dialect.routes[0]} is not served here", 404)


async def hold_memory(call: Call) -> None:
    """Wait until the rollout may hold one more body of that size; the engine keeps what it parsed as long."""
    largest, request = call.gateway.config.max_body, call.request
    # A packed body may unpack to anything.
    size = None if "Content-Encoding" in request.headers else request.content_length
    await call.gateway.memory.hold(min(largest, size or largest), call.until_end)


LISTS = ("messages", "input", "tools")
"""Keys whose lists cost time by entry, whatever stands in them."""


async def read(call: Call) -> None:
    """Read the body. Changes `body` and `server_body`; what it costs is charged in any case."""
    config, entries = call.gateway.config, 0
    again = call.session is not None and f"explicit:{call.key}" in call.session.idempotent_requests
    if call.key and again and not call.gateway.main.released:
        record = call.gateway.main.trace.info.setdefault(GATEWAY_RECORD, {})
        record[REPEATED] = record.get(REPEATED, 0) + 1
    try:
        raw, call.body = await parse_body(await _read_body(call.request, config.max_body))
        _require_conversation(call.body, call.dialect.upstream_path)
        entries = sum(len(call.body[key]) for key in LISTS if isinstance(call.body.get(key), list))
        changed = [config.filter_requests and _filter(call), _hold_beginning(call)]
        whole = to_json(call.body) if any(changed) else raw
        # Python's hash of bytes is keyed by process, so nobody can make two bodies collide.
        call.server_body = b'"%d bytes: %d"' % (len(whole), hash(whole))
    finally:
        call.gateway.cpu.charge(call.request.content.total_bytes, entries)


async def read_json(call: Call) -> None:
    """Read the body of a request that asks nothing of the endpoint. Changes `server_body`: it is the body."""
    try:
        call.server_body, _ = await parse_body(await _read_body(call.request, call.gateway.config.max_body))
    finally:
        call.gateway.cpu.charge(call.request.content.total_bytes, 0)


async def _read_body(request: web.Request, most: int) -> bytes:
    """The bytes of a request's body, unpacked."""
    too_large = RequestRefused(f"the request is larger than {most} bytes", 413)
    if (request.content_length or 0) > most:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    while True:
        try:
            if request.content.is_eof():  # all of it is here: nothing to wait for, and no timer to set
                chunk = request.content.read_nowait()
            else:
                async with asyncio.timeout(BODY_IDLE_SECONDS):
                    chunk = await request.content.readany()
        except TimeoutError:
            raise RequestRefused("the rest of the request did not come", 408) from None
        except (ValueError, web.RequestPayloadError) as error:  # what says to be packed, or in pieces, and is not
            raise RequestRefused(f"the request cannot be unpacked: {error}") from None
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise too_large


async def parse_body(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """A body as the engine will read it, and what it says."""
    # A value takes a byte at least, so a short body cannot hold too many.
    may_exceed = len(raw) > MAX_VALUES and _openers(raw) > MAX_VALUES
    if may_exceed and await asyncio.to_thread(_holds_more_values, raw, MAX_VALUES):
        raise RequestRefused(f"the request holds more than {MAX_VALUES} JSON values")
    raw, body = _parsed(raw)
    if not isinstance(body, dict):
        raise RequestRefused("the request must be a JSON object")
    if raw.count(b"[") + raw.count(b"{") > MAX_BODY_DEPTH and _deeper_than(body, MAX_BODY_DEPTH):
        raise RequestRefused(f"the request nests deeper than {MAX_BODY_DEPTH}")
    for key in LISTS:
        entries = body.get(key)
        if isinstance(entries, list) and len(entries) > MAX_MESSAGES:
            raise RequestRefused(f"the request holds more than {MAX_MESSAGES} {key}")
    return raw, body


_SURROGATE = re.compile("hex escape|surrogate")


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


_PIECE, _LOOKED_AT = 1 << 20, 1 << 18
_COMMA, _BRACE = ord(","), ord("{")
_BRACKET_TO_BRACE = ord("[") ^ ord("{")


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
    """Return how many commas, brackets and braces stand in bytes: each brings a value at most, outside of strings."""
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


def _require_conversation(body: dict[str, Any], wire_format: str) -> None:
    """Refuse a request that says nothing, or lists what are not objects, as every provider does."""
    if wire_format != RESPONSES and not body.get("messages"):
        raise RequestRefused("messages must hold at least one message")
    for key in ("messages", "tools"):
        entries = body.get(key)
        if entries is not None and not (isinstance(entries, list) and all(isinstance(one, dict) for one in entries)):
            raise RequestRefused(f"{key} must be a list of objects")


def _filter(call: Call) -> bool:
    """Take out of the body what does not go upstream by the harness's rules; returns whether it held such. Tools that
    went upstream in an earlier chat request need no second look."""
    body, path, rules = call.body, call.dialect.upstream_path, call.gateway.rules
    if body.get("n", 1) != 1:
        raise RequestRefused("n must be 1")
    dropped = [key for key, value in body.items() if key not in KEYS[path] and not rules.passes(key, value)]
    for key in dropped:
        del body[key]
    if path == CHAT:
        dropped += _drop_message_keys(body, CHAT_MESSAGE_KEYS | rules.message_keys)
    known, _ = call.gateway.offered.get(call.is_main, ({}, None))
    settings = {key: body[key] for key in ("tools", "tool_choice") if body.get(key) is not None}
    if settings and not (path == CHAT and settings == {"tools": known.get("tools")}):
        given = set(settings)
        dropped += _mediated(settings, call.dialect)
        for key in given - settings.keys():
            del body[key]
        body.update((key, settings[key]) for key in given & settings.keys())  # it may add a message of its own
    if fetched := _mediated({key: body[key] for key in ("messages", "input", "system") if key in body}, call.dialect):
        shown = ", ".join(fetched)[:500]
        raise RequestRefused(f"{shown}: only text and data: URLs can be sent, nothing that the endpoint would fetch")
    if dropped:
        call.gateway.note("dropped", dropped)
    return bool(dropped)


def _drop_message_keys(body: dict[str, Any], allowed: frozenset[str]) -> list[str]:
    dropped: dict[str, None] = {}
    for message in body["messages"]:
        if not message.keys() <= allowed:
            for key in message.keys() - allowed:
                dropped[f"messages[].{key}"] = None
                del message[key]
    return list(dropped)


_NO_NETWORK = NetworkPolicyConfig(allow=[])


def _mediated(part: dict[str, Any], dialect: Dialect[Any]) -> list[str]:
    """Return what verifiers' own network policy takes out of a part of a request when nothing may be reached."""
    try:
        return list(dict.fromkeys(dialect.mediate_external_capabilities(part, _NO_NETWORK)[1]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequestRefused(f"the request cannot be read: {error}") from None


def _hold_beginning(call: Call) -> bool:
    """Let the call go on with what its conversation began with; returns whether it would not have."""
    if call.session is None or not call.is_chat or call.conversation is None or not call.caller.run:
        return False
    key, summaries = call.key or "", call.gateway.summaries
    call.summarises = summaries.asked(call.body, call.conversation, key, call.until_end)
    agent = key.partition(":")[2]
    if agent == summaries.agent and not call.summarises:
        agent = ""
    fixed = call.gateway.fixed_prompts
    return fixed.hold(call.body, call.conversation, agent, summarises=call.summarises)


async def choose_summariser(call: Call) -> None:
    """Have a summary that is due made by the model of another seat, where there is one; a session that may make no
    further call refuses it. Changes `session`, `bearer` and `summarised_for`."""
    gateway = call.gateway
    if call.summarises and gateway.summariser is not None:
        main = gateway.ended or gateway.calls.used_up
        if (main if call.sub is None else call.sub.session.used_up) is None:
            call.summarised_for, call.session = call.session, gateway.summariser
            call.bearer = gateway.summary_bearer


_ROUTING = frozenset({"x-session-affinity", "x-parent-session-id", "authorization", "x-api-key", _MARK})
"""Agents' own routing, keys and marks; verifiers sends the trace id in `X-Session-ID`, which replaces an agent's."""
_PASSED = frozenset(
    {"accept", "content-type", "content-length", IDEMPOTENCY_KEY_HEADER.lower(), *ACP_EXTENSION_HEADERS}
)
"""Content negotiation, and what verifiers' server reads and keeps to itself."""


async def choose_headers(call: Call) -> None:
    """Choose the headers that go on: content negotiation, the format's own, and those that the user configured; never
    what routed the request here, or the rollout's secret. Changes `headers`."""
    gateway, path = call.gateway, call.dialect.upstream_path
    for name, value in call.request.headers.items():
        lower = name.lower()
        routed = gateway.secret in value or lower.startswith("x-rlm-") or lower in _ROUTING
        if not routed and (not gateway.config.filter_requests or _goes_on(lower, value, path, gateway.rules)):
            call.headers.append((name, value))


def _goes_on(name: str, value: str, wire_format: str, rules: ModelRequests) -> bool:
    if name == RETRY_COUNT_HEADER:
        return value.isdigit() and len(value) < 3
    return name in _PASSED or name in HEADERS[wire_format] or value in rules.headers.get(name, ())


async def take_place(call: Call) -> None:
    """Wait for the place of a main call. Changes `joined`, and `headers` so that the engine knows a retry."""
    gateway = call.gateway
    if not call.is_main:
        return
    if call.caller.own:  # what a program asks says nothing of how the agent's own run ends
        gateway.main_request(None)
    call.joined = await gateway.calls.let_through(call.request, call.key, call.server_body, call.until_end)
    if call.joined and call.key is None and not is_retried_request(call.request.headers):
        call.headers.append((RETRY_COUNT_HEADER, "1"))
    if not call.caller.own:
        call.until_end.enter_context(gateway.load.carrying())


async def find_history(call: Call) -> None:
    """Have the call's history restored when it is read. Changes `history`, `section` and `request_key`. What the
    agent's programs ask has no history of its own, and is read as it came."""
    history = call.gateway.histories.get(call.is_main)
    if history is None or not call.caller.own:
        return
    name = call.conversation
    if name is not None and not call.summarises:
        try:
            call.section = history.section(call.body, name)
        except (AttributeError, KeyError, TypeError) as error:
            raise RequestRefused(f"the request cannot be read: {error!r}") from None
    if name is not None and (call.summarises or call.section is not None):
        name = f"{name}\n{'summary' if call.summarises else call.section}"
    call.request_key = (name, call.server_body)
    if call.summarised_for is not None:
        return
    call.history = history
    call.until_end.enter_context(history.requests.serving(call.request_key))


def require_place(call: Call) -> None:
    """Refuse to sample for a call that has joined one that failed meanwhile; it may be sent again."""
    if call.joined:
        raise ProviderError("server error: the call that this one repeats has failed", status_code=503)


def bring_back(call: Call) -> None:
    """Put a summary that another seat's model failed to make among the calls of its conversation's session, which that
    ends as any other; one that it made stands there only behind a failure, which else would be the last thing that the
    endpoint did. Changes `session`."""
    if call.session is None or call.summarised_for is None or call.record is None:
        return
    calls = call.summarised_for.trace.calls
    if call.record.node is None:
        call.summarised_for.error = call.session.error
        calls.append(call.session.trace.calls.pop())
        call.session = call.summarised_for
        return
    call.summarised_for.error = None
    if calls and calls[-1].error is not None:
        calls.append(call.record.model_copy(update={"node": None, "usage": None}))


def commit(call: Call) -> None:
    """Take up the answer of the recorded call in its conversation."""
    node = None if call.record is None else call.record.node
    if call.summarised_for is not None:
        _commit_from_elsewhere(call)
        return
    if call.history is not None and call.request_key is not None and node is not None:
        assert call.record is not None
        call.history.requests.committed(node, call.request_key, call.last_message)
        if call.summarises and call.conversation is not None:
            planned = call.gateway.summaries.planned(call.conversation)
            call.history.forks.summarised(node, call.conversation, planned=planned)
            return
        tokens = 0 if call.record.usage is None else call.record.usage.total_tokens
        call.history.forks.committed(node, call.conversation, call.section, tokens)


def _commit_from_elsewhere(call: Call) -> None:
    """Take up a summary that another seat's model has made."""
    record, history = call.record, call.gateway.histories.get(call.is_main)
    if record is None or record.node is None or history is None or call.session is None or call.conversation is None:
        return
    usage = record.usage
    said = {
        "seat": SUMMARY_SEAT,
        "model": record.model,
        "message": call.session.trace.nodes[record.node].message.model_dump(mode="json", exclude_none=True),
        "input_tokens": 0 if usage is None else usage.input_tokens,
        "completion_tokens": 0 if usage is None else usage.completion_tokens,
    }
    planned = call.gateway.summaries.planned(call.conversation)
    history.forks.summarised(None, call.conversation, planned=planned, said=said)


def count(call: Call) -> None:
    """Count the recorded call against the budgets of its seat; a failed main call is paid for like a refused one."""
    assert call.session is not None
    assert call.record is not None
    gateway, nodes = call.gateway, call.session.trace.nodes
    if call.session is gateway.summariser:
        return
    if call.sub is not None:
        call.sub.session.tally.add(call.record, nodes)
        return
    gateway.calls.tally.add(call.record, nodes)
    if call.record.node is None:
        gateway.cpu.charge_refusal()
        position = len(call.session.trace.calls) - 1
        if call.key is not None and call.caller.own:
            gateway.keys[position] = call.key
        if call.wait:
            gateway.waits[position] = call.wait
        if call.summarised_for is not None:
            gateway.elsewhere.add(position)


def weigh(call: Call) -> None:
    """Count what the recorded call has left on its trace, and cut what a program of the agent's said at length."""
    assert call.session is not None
    assert call.record is not None
    # What may be trained on stands beside its tokens, of which an engine's window takes no more.
    program = call.is_main and not call.trains and not call.gateway.program.is_own(call.caller)
    call.gateway.left.take(call.session.trace, call.record, program=program)


def record_caller(call: Call) -> None:
    """Note on the main trace that a program of the agent made the recorded call."""
    if call.session is call.gateway.main and not call.gateway.program.is_own(call.caller):
        note_program_call(call.gateway.main.trace)
