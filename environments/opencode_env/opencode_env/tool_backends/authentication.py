"""Headers that prove who requests are from; what they are made of never reaches the agent, nor any message."""

import os
import re
from collections.abc import Iterator, Mapping

from opencode_env.tool_backends.description import Authentication

_NEEDED = {"none": (), "bearer_token": ("token",), "custom_header": ("header_name", "header_value")}
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LIKE_A_VARIABLE = re.compile(r"\$[A-Za-z_{]")
_HEADER = re.compile(r"[!-~]([ -~]*[!-~])?")
_SECRET_CHARS = 7
"""What is shorter is not a secret: `Bearer`."""


def missing_details(given: Authentication) -> Iterator[tuple[str, str]]:
    """What the authentication lacks: the field, and what to change."""
    details = given.auth_details or {}
    needed = _NEEDED[given.auth_type]
    field = "auth_type" if given.auth_details is None else "auth_details"
    if missing := [name for name in needed if not details.get(name)]:
        yield field, f"{given.auth_type} needs auth_details with {' and '.join(missing)}"
    if needed and (unknown := sorted(set(details) - set(needed))):
        yield "auth_details", f"{given.auth_type} knows no {', '.join(unknown)}; it has {' and '.join(needed)}"
    unset = list(wrong_variables(details))
    yield from (("auth_details", message) for message in unset)
    for name, value in {} if unset else expanded(details).items():
        if value and not _HEADER.fullmatch(value):
            yield "auth_details", f"{name} cannot be sent: it holds a line break, a space at an end, or no ASCII"


def wrong_variables(values: Mapping[str, str]) -> Iterator[str]:
    """What to change for each `${NAME}` in the values that is not a variable of this environment, and whatever else a
    shell would replace: here it would be sent as it is written."""
    for name in sorted({name for value in values.values() for name in _VARIABLE.findall(value)}):
        if name not in os.environ:
            yield f"the environment variable {name} is not set"
    for key, value in values.items():
        if _LIKE_A_VARIABLE.search(_VARIABLE.sub("", value)):  # which may be a secret and is not shown
            yield (
                f"{key} holds a $ before a name or a brace, and only ${{NAME}} is replaced: write that; a $ that is "
                "meant can come in the variable"
            )


def expanded(values: Mapping[str, str]) -> dict[str, str]:
    """The values with each `${NAME}` replaced."""
    return {name: _VARIABLE.sub(lambda found: os.environ[found.group(1)], value) for name, value in values.items()}


def headers_of(given: Authentication) -> dict[str, str]:
    """The headers of every request."""
    details = expanded(given.auth_details or {})
    if given.auth_type == "bearer_token":
        return {"Authorization": f"Bearer {details['token']}"}
    if given.auth_type == "custom_header":
        return {details["header_name"]: details["header_value"]}
    return {}


def without_secrets(text: str, values: Mapping[str, str]) -> str:
    """What a server said, without the values that it was given: it may repeat them."""
    for word in sorted({word for value in values.values() for word in value.split()}, key=len, reverse=True):
        if len(word) >= _SECRET_CHARS:
            text = text.replace(word, "***")
    return text
