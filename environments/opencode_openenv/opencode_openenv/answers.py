"""The text of a tool's answer, in whatever shape a version of OpenEnv hands it over."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from opencode_openenv.result import RolloutResult


def read_result(answer: Any) -> RolloutResult:
    """The result in an answer: its text, or an object or mapping with `content[0].text`, or either of them below
    `result`.

    Raises:
        ValueError: there is no result in it.
    """
    text = _text(answer)
    if text is None and isinstance(answer, Mapping) and "reward" in answer:
        text = json.dumps(answer)
    if text is None:
        raise ValueError(f"the server's answer holds no text: {type(answer).__name__} {str(answer)[:200]!r}")
    try:
        return RolloutResult.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"the server's answer is not a RolloutResult: {text[:200]!r}: {error}") from error


def _text(answer: Any) -> str | None:
    for holder in (answer, _part(answer, "result")):
        if isinstance(holder, str):
            return holder
        content = _part(holder, "content")
        first = content[0] if isinstance(content, (list, tuple)) and content else None
        text = _part(first, "text")
        if isinstance(text, str):
            return text
    return None


def _part(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
