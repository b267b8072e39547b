"""What can still be checked of a file whose types or keys are wrong, so that all its mistakes are told in one pass."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from opencode_env.tool_backends.description import AppConfig
from opencode_env.tool_backends.document import Place

_STAND_INS = {
    "backend_name_ref": "(unnamed {n})",
    "base_url": "http://localhost",
    "tool_name": "list_tools",
    "bind": "/nowhere",
}
"""Of fields that must be there."""
_ROUNDS = 20


class Salvage:
    """A file's content without what was wrong with its types and keys."""

    def __init__(self, content: Any) -> None:
        self.errors: list[ErrorDetails] = []
        """What was wrong in the content as it was given."""
        self.config = AppConfig()
        self._taken: list[Place] = []
        self._content = copy.deepcopy(content)
        for _ in range(_ROUNDS):
            try:
                self.config = AppConfig.model_validate(self._content)
                break
            except ValidationError as error:
                found = error.errors(include_url=False)
                self.errors = self.errors or found
                for one in found:
                    self._take_out(one["loc"], unknown=one["type"] == "extra_forbidden")

    def follows(self, place: Place, message: str) -> bool:
        """Whether a mistake is but the absence of what was taken out."""
        place = tuple(place)
        for taken in self._taken:
            name, parent = taken[-1], tuple(taken[:-1])
            named = isinstance(name, str) and re.search(rf"\b{re.escape(name)}\b", message)
            if place[: len(taken)] == tuple(taken) or (named and place[: len(parent)] == parent):
                return True
        return False

    def _take_out(self, place: Sequence[int | str], *, unknown: bool) -> None:
        """Take one wrong thing out, or put what will do in its place."""
        if not isinstance(self._content, dict):
            self._content = {}
            return
        path = tuple(place)
        while path:
            holder = self._at(path[:-1])
            if isinstance(holder, dict) and isinstance(path[-1], str):
                break
            if isinstance(holder, list) and path[:-1] == ("backends",) and isinstance(path[-1], int):
                break
            path = path[:-1]
        if not path:
            self._content = {}
            return
        name = path[-1]
        self._taken.append(path)
        if isinstance(holder, list):
            holder[int(name)] = _stand_in_backend(int(name))
        elif name == "orchestration_mode" and not unknown:
            self._taken[-1] = path[:-1]  # without it nothing else can be judged
            self._at(path[:-2])[path[-2]] = _stand_in_backend(int(path[-2]))
        elif name in _STAND_INS and not unknown:
            holder[name] = _STAND_INS[str(name)].format(n=len(self._taken))
        elif path[:-1] == ("global_remote_apis",):
            holder[name] = {"base_url": _STAND_INS["base_url"]}
        else:
            holder.pop(name, None)

    def _at(self, place: Sequence[int | str]) -> Any:
        found = self._content
        for step in place:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return None
        return found


def _stand_in_backend(index: int) -> dict[str, str]:
    return {
        "backend_name_ref": f"(unreadable {index})",
        "orchestration_mode": "remote_url",
        "url": "http://localhost",
    }
