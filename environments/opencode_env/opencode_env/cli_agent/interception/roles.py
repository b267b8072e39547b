"""What the routing headers of a request say.

Invariant: the header alone decides the role.
"""

from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

ROLE_HEADER = "X-RLM-Role"
"""`main` or `sub`, in any case; without it a request is the main agent's."""

DEPTH_HEADER = "X-RLM-Depth"
"""How many sub-agents deep the conversation of a `sub` request is; absent in one-shot calls."""


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
        RoleRefused: an unknown role, two roles, or a depth that is not a small whole number.
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
