"""What the routing headers of a request say, and which headers of a request may travel upstream.

Invariant: the header alone decides the role; nothing that routed a request, and not the rollout's secret, is left in
the headers that `upstream_headers` returns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

ROLE_HEADER = "X-RLM-Role"
"""`main` or `sub`, in any case; without it a request is the main agent's."""

DEPTH_HEADER = "X-RLM-Depth"
"""How many sub-agents deep the conversation of a `sub` request is; absent in one-shot calls."""

_PREFIX = "x-rlm-"
_ROUTING = frozenset({"x-session-affinity", "x-parent-session-id"})
"""Agents' own routing headers; verifiers sends the trace id in `X-Session-ID`, which replaces an agent's."""
_SECRETS = frozenset({"authorization", "x-api-key"})


class Role(StrEnum):
    """Who made a model call."""

    MAIN = "main"
    """The agent itself, or a program of it that says nothing or says `main`."""
    SUB = "sub"
    """A one-shot sub-LLM call, or a sub-agent."""


class RoleRefused(ValueError):
    """The routing headers of a request mean nothing; the message says what they may be."""


@dataclass(frozen=True)
class Mark:
    """The routing headers of one request."""

    role: Role
    explicit: bool
    """Whether the request carried the role header."""
    depth: int


def read_mark(request: web.BaseRequest) -> Mark:
    """The role and depth of a request.

    Raises:
        RoleRefused: an unknown role, two roles, or a depth that is no small whole number.
    """
    roles = request.headers.getall(ROLE_HEADER, ())
    if not roles:
        return Mark(Role.MAIN, explicit=False, depth=0)
    try:
        (value,) = roles
        role = Role(value.strip().lower())
    except ValueError:
        shown = ", ".join(roles)[:100]
        raise RoleRefused(f"unknown {ROLE_HEADER} {shown!r}: it must be `main` or `sub`, once") from None
    depths = request.headers.getall(DEPTH_HEADER, ("0",))
    if len(depths) != 1 or not (depths[0].isascii() and depths[0].isdigit() and len(depths[0]) < 4):
        raise RoleRefused(f"{DEPTH_HEADER} must be a whole number, once")
    return Mark(role, explicit=True, depth=int(depths[0]))


def upstream_headers(headers: Mapping[str, str], secret: str, bearer: str) -> list[tuple[str, str]]:
    """The headers of a request without routing and without the rollout's secret, for the session of `bearer`."""
    kept = [("Authorization", f"Bearer {bearer}")]
    for name, value in headers.items():
        lower = name.lower()
        if lower.startswith(_PREFIX) or lower in _ROUTING or lower in _SECRETS or secret in value:
            continue
        kept.append((name, value))
    return kept
