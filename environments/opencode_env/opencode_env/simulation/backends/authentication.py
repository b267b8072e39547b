"""Headers that prove who requests are from; what they are made of never reaches the agent."""

import os
import re
from collections.abc import Iterator

from opencode_env.simulation.backends.description import Authentication

_NEEDED = {"none": (), "bearer_token": ("token",), "custom_header": ("header_name", "header_value")}
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def missing_details(given: Authentication) -> Iterator[tuple[str, str]]:
    """What the authentication lacks: the field, and what to change."""
    details = given.auth_details or {}
    needed = _NEEDED[given.auth_type]
    field = "auth_type" if given.auth_details is None else "auth_details"
    if missing := [name for name in needed if not details.get(name)]:
        yield field, f"{given.auth_type} needs auth_details with {' and '.join(missing)}"
    if needed and (unknown := sorted(set(details) - set(needed))):
        yield "auth_details", f"{given.auth_type} knows no {', '.join(unknown)}; it has {' and '.join(needed)}"
    for name in sorted({name for value in details.values() for name in _VARIABLE.findall(value)}):
        if name not in os.environ:
            yield "auth_details", f"the environment variable {name} is not set"


def headers_of(given: Authentication) -> dict[str, str]:
    """The headers of every request."""
    details = {name: _VARIABLE.sub(_variable, value) for name, value in (given.auth_details or {}).items()}
    if given.auth_type == "bearer_token":
        return {"Authorization": f"Bearer {details['token']}"}
    if given.auth_type == "custom_header":
        return {details["header_name"]: details["header_value"]}
    return {}


def _variable(found: re.Match[str]) -> str:
    return os.environ[found.group(1)]
