"""Makes what a rollout left writable: one half of a character anywhere in it would end the whole evaluation.

What the model said is whole since the interception. The rest (logs, tool output, answers, errors, what a task or a
rubric wrote down) comes from programs and files of the agent.
"""

from typing import Any

from pydantic import BaseModel

from opencode_env.cli_agent.interception.whole_text import whole_text


def make_writable(model: BaseModel) -> None:
    """Replace halves of characters in all texts of a model and of what it holds, in place, by U+FFFD."""
    for fields in (model.__dict__, model.__pydantic_extra__ or {}):
        for name, value in fields.items():
            mended = _mended(value)
            if mended is not value:
                fields[name] = mended  # as it is, past validation: the type stays


def _mended(value: Any) -> Any:
    """The same object if nothing in it had to change, or if it could be changed in place."""
    if isinstance(value, str):
        whole = whole_text(value)
        return value if whole == value else whole
    if isinstance(value, BaseModel):
        make_writable(value)
    elif isinstance(value, dict):
        for key in list(value):
            value[_mended(key)] = _mended(value.pop(key))
    elif isinstance(value, list) and not (value and isinstance(value[0], int | float)):  # token ids, logprobs, masks
        value[:] = map(_mended, value)
    elif isinstance(value, tuple):
        return tuple(map(_mended, value))
    return value
