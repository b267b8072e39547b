"""What a request says: its body and headers, within the bounds and without what does not go upstream."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic_core import to_json

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.gateway import RECORD, REPEATED
from opencode_env.cli_agent.interception.own_calls import MARK_HEADER
from opencode_env.cli_agent.interception.refusals import RequestRefused
from opencode_env.cli_agent.interception.request_body import (
    LISTS,
    identity_of,
    parse_body,
    read_body,
    require_conversation,
)
from opencode_env.cli_agent.interception.request_filter import filter_body, filter_headers, routed_headers

_MARK = MARK_HEADER.lower()


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
        call.server_body = identity_of(to_json(call.body) if any(changed) else raw)
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
    if call.session is None or call.sub is not None or not call.is_chat:
        return False
    if call.conversation is None or not call.caller.run:
        return False
    agent = (call.key or "").partition(":")[2]
    return call.gateway.beginnings.hold(call.body, call.conversation, agent)


async def choose_headers(call: Call) -> None:
    """Choose the headers that go on. Changes `headers`."""
    gateway = call.gateway
    call.headers = routed_headers(call.request.headers, gateway.secret)
    if gateway.config.filter_headers:
        call.headers = filter_headers(call.headers, call.dialect.upstream_path, gateway.rules)
