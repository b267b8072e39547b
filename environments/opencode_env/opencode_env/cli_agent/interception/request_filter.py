"""What of one request goes upstream: the harness's own keys and headers, and nothing that the endpoint would fetch.

What is left out is left out silently for the caller and counted by its path; what would change the meaning of the
conversation is refused instead.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.dialects import Dialect
from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER, RETRY_COUNT_HEADER
from verifiers.v1.semantic import ACP_EXTENSION_HEADERS

from opencode_env.cli_agent.interception.own_calls import MARK_HEADER
from opencode_env.cli_agent.interception.refusals import RequestRefused
from opencode_env.cli_agent.interception.request_rules import CHAT, CHAT_MESSAGE_KEYS, HEADERS, KEYS, ModelRequests

_NO_NETWORK = NetworkPolicyConfig(allow=[])
_ROUTING = frozenset({"x-session-affinity", "x-parent-session-id", "authorization", "x-api-key", MARK_HEADER.lower()})
"""Agents' own routing, keys and marks; verifiers sends the trace id in `X-Session-ID`, which replaces an agent's."""
_NEGOTIATION = frozenset({"accept", "content-type", "content-length"})
_ENGINE = frozenset({IDEMPOTENCY_KEY_HEADER.lower(), *ACP_EXTENSION_HEADERS})
"""Read by verifiers' server, which keeps them to itself."""


def filter_body(
    body: dict[str, Any], dialect: Dialect[Any], rules: ModelRequests, known_tools: object = None
) -> list[str]:
    """Take out of `body`, in place, what does not go upstream by the harness's rules; returns the paths of what was
    taken. `known_tools` went upstream in an earlier chat request, and need no second look.

    Raises:
        RequestRefused: the conversation holds what only the endpoint could fetch, or the request asks for several
            answers.
    """
    if body.get("n", 1) != 1:
        raise RequestRefused("n must be 1")
    path = dialect.upstream_path
    dropped = [key for key, value in body.items() if key not in KEYS[path] and not rules.passes(key, value)]
    for key in dropped:
        del body[key]
    if path == CHAT:
        dropped += _drop_message_keys(body, CHAT_MESSAGE_KEYS | rules.message_keys)
    settings = {key: body[key] for key in ("tools", "tool_choice") if body.get(key) is not None}
    if settings and not (path == CHAT and settings == {"tools": known_tools}):
        given = set(settings)
        dropped += _mediated(settings, dialect)
        for key in given - settings.keys():
            del body[key]
        body.update((key, settings[key]) for key in given & settings.keys())  # it may add a message of its own
    if fetched := _mediated({key: body[key] for key in ("messages", "input", "system") if key in body}, dialect):
        shown = ", ".join(fetched)[:500]
        raise RequestRefused(f"{shown}: only text and data: URLs can be sent, nothing that the endpoint would fetch")
    return dropped


def _drop_message_keys(body: dict[str, Any], allowed: frozenset[str]) -> list[str]:
    dropped: dict[str, None] = {}
    for message in body["messages"]:
        if not message.keys() <= allowed:
            for key in message.keys() - allowed:
                dropped[f"messages[].{key}"] = None
                del message[key]
    return list(dropped)


def _mediated(part: dict[str, Any], dialect: Dialect[Any]) -> list[str]:
    """What verifiers' own network policy takes out of a part of a request when nothing may be reached."""
    try:
        return list(dict.fromkeys(dialect.mediate_external_capabilities(part, _NO_NETWORK)[1]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequestRefused(f"the request cannot be read: {error}") from None


def routed_headers(headers: Mapping[str, str], secret: str) -> list[tuple[str, str]]:
    """The headers of a request without what routed it here and without the rollout's secret."""
    return [
        (name, value)
        for name, value in headers.items()
        if secret not in value and not (lower := name.lower()).startswith("x-rlm-") and lower not in _ROUTING
    ]


def filter_headers(headers: Sequence[tuple[str, str]], wire_format: str, rules: ModelRequests) -> list[tuple[str, str]]:
    """The headers that go on: content negotiation, the format's own, and those that the user configured."""
    return [(name, value) for name, value in headers if _goes_on(name.lower(), value, wire_format, rules)]


def _goes_on(name: str, value: str, wire_format: str, rules: ModelRequests) -> bool:
    if name == RETRY_COUNT_HEADER:
        return value.isdigit() and len(value) < 3
    named = name in _NEGOTIATION or name in _ENGINE or name in HEADERS[wire_format]
    return named or value in rules.headers.get(name, ())
