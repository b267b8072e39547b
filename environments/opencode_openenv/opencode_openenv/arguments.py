"""Reading a call's arguments: what is wrong with them is said in the words of `run_rollout`, all of it at once.

Invariant: no message shows a value, because one of them is a key.
"""

from collections.abc import Callable, Mapping
from typing import Any

from opencode_env.taskset.errors import nearest_name
from pydantic import ValidationError

from opencode_openenv.spec import RolloutSpec

Context = Mapping[str, Any]

_PATTERNS = {
    "template": "is not a name of a container image, such as python:3.11-slim",
    "setup": "holds a NUL character, which no shell takes",
    "verify": "holds a NUL character, which no shell takes",
}
_NUMBER, _WHOLE = "must be a number", "must be a whole number"
_TOLD: Mapping[str, str | Callable[[Context], str]] = {
    "missing": "is missing",
    "string_type": "must be a text",
    "string_unicode": "holds a lone surrogate, which is not text",
    "string_too_short": "must not be empty",
    "string_too_long": lambda context: f"must have at most {context['max_length']:,} characters",
    "too_long": lambda context: f"must hold at most {context['max_length']} commands",
    "literal_error": lambda context: f"must be one of {context['expected']}",
    "finite_number": "must be a finite number",
    "greater_than": lambda context: f"must be above {context['gt']:g}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']:g}",
    "less_than_equal": lambda context: f"must be at most {context['le']:g}",
    "value_error": lambda context: str(context["error"]),
    **dict.fromkeys(("float_type", "float_parsing"), _NUMBER),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
}
"""What pydantic's kinds of errors mean here."""


def read_arguments(arguments: Mapping[str, Any]) -> RolloutSpec:
    """The rollout that a caller asks for; an argument of None stands for its default.

    Raises:
        ValueError: wrong arguments; the message says what is wrong with each.
    """
    try:
        return RolloutSpec.model_validate({name: value for name, value in arguments.items() if value is not None})
    except ValidationError as error:
        told = [_told(item["type"], item["loc"], item.get("ctx", {}), item["msg"]) for item in error.errors()]
    raise ValueError(f"invalid arguments: {'; '.join(told)}")


def _told(kind: str, place: tuple[int | str, ...], context: Context, message: str) -> str:
    name, *items = map(str, place or ("",))
    where = name + "".join(f"[{item}]" for item in items)
    if kind == "extra_forbidden":
        return f"{where} is not an argument of run_rollout; {nearest_name(name, RolloutSpec.model_fields)}"
    if kind == "string_pattern_mismatch":
        return f"{where} {_PATTERNS[name]}"
    known = _TOLD.get(kind, message)
    return f"{where} {known if isinstance(known, str) else known(context)}".strip()
