"""What OpenCode 1.18.33 makes of its model's answers when it sends them back, rule by rule.

Its AI SDK parses the arguments of every call and writes them again, keeps text and reasoning of an answer in one piece
each, and has an answer that it could not run by a call of its own tool `invalid`. Values are therefore compared as
JavaScript sees them: every number is a double, so 5000.0 is 5000 and big integers are rounded; what is too large for
one is written as null, and -0 as 0. Of duplicate keys the last one counts. NaN and Infinity are not JSON. Whatever else
differs is a change of the history and no echo.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any, NoReturn

from verifiers.v1.types import AssistantMessage, ToolCall

from opencode_env.cli_agent.interception.history import Wire, message_key

_STEP_LIMIT = "CRITICAL - MAXIMUM STEPS REACHED\n"
_INVALID = "invalid"
_MISTRALS = "Done."
_BEFORE_SUMMARY = "What did we do so far?"


class OpenCodeEcho:
    """OpenCode's rules, for the gateway on the path to the model."""

    conversation_header = "x-session-id"
    """Names OpenCode's session; sub-agents have one each."""
    side_agents = frozenset({"compaction", "title"})
    summary_agent = "compaction"

    def recognise(self, sampled: AssistantMessage, echo: Wire) -> Sequence[str] | None:
        """The sampled ids of the echo's calls, in the order that they have there; None when it is not an echo of that
        answer. Content: null comes back as "". Reasoning: `reasoning` comes back as `reasoning_content`, and as ""
        where there was empty, or only `reasoning_details`, which OpenCode does not read."""
        reasoning = echo.get("reasoning_content") or ""
        unread = sampled.provider_state is not None and not reasoning
        if (sampled.content or "") != (echo.get("content") or ""):
            return None
        if not unread and (sampled.reasoning_content or "") != reasoning:
            return None
        return _sampled_ids(sampled.tool_calls or [], echo.get("tool_calls") or [])

    def leaves_out(self, sampled: AssistantMessage) -> bool:
        """An answer without text, reasoning and calls is missing from the history."""
        return not (sampled.content or sampled.reasoning_content or sampled.tool_calls)

    def stands_in(self, echo: Wire) -> bool:
        """Whether it stands between a tool's result and what the user says, when the model is named after one of
        Mistral's: those models take no two in a row. It goes upstream as it is; the trace holds the empty answer."""
        return echo.keys() <= {"role", "content"} and echo.get("content") == _MISTRALS

    def says_once(self, message: AssistantMessage) -> bool:
        """Whether it is the order to stop that ends a request at an agent's step limit (`steps`); it is sent once."""
        return (message.content or "").startswith(_STEP_LIMIT)

    def behind_question(self, messages: Sequence[Wire]) -> int | None:
        """The position of what follows OpenCode's question for the work so far, before which only users speak; None
        where it does not ask."""
        first = sum(1 for _ in takewhile(lambda one: one.get("role") == "system", messages))
        for position, message in enumerate(messages[first:], first + 1):
            if message.get("role") != "user":
                return None
            if message_key(message)[0].endswith(_BEFORE_SUMMARY):
                return position
        return None


def _sampled_ids(sampled: Sequence[ToolCall], echoed: Sequence[Wire]) -> list[str] | None:
    """The ids of the calls that were echoed, in the order in which they arrived; every id comes back. Of several calls
    with one id OpenCode keeps one, or each that came when the one before had failed already; what it keeps may have the
    name of one and the arguments of another."""
    said = _by_id(tuple((call.id, call.name, call.arguments) for call in sampled))
    if not len(said) <= len(echoed) <= len(sampled):
        return None
    for spell in _ID_SPELLINGS:
        left: dict[str, list[str]] = {}
        for call in sampled:
            left.setdefault(spell(call.id), []).append(call.id)
        ids = [_taken(left.get(echo["id"], []), said, echo["function"]) for echo in echoed]
        if set(ids) == said.keys():
            return [identity for identity in ids if identity is not None]
    return None


@lru_cache(maxsize=4)  # of one answer after the other, with many echoes each
def _by_id(calls: tuple[tuple[str, str, str], ...]) -> "dict[str, _OfOneId]":
    """Calls, each (id, name, arguments), by their ids."""
    found: dict[str, list[tuple[str, str]]] = {}
    for identity, name, arguments in calls:
        found.setdefault(identity, []).append((name, arguments))
    return {identity: _OfOneId(same) for identity, same in found.items()}


def _taken(left: list[str], said: Mapping[str, "_OfOneId"], echo: Wire) -> str | None:
    """The first of the ids that are left whose calls came back as that; it is no longer left."""
    found = next((identity for identity in dict.fromkeys(left) if said[identity].came_back_as(echo)), None)
    if found is not None:
        left.remove(found)
    return found


_ID_SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda identity: identity,
    lambda identity: re.sub("[^a-zA-Z0-9_-]", "_", identity),
    lambda identity: re.sub("[^a-zA-Z0-9]", "", identity)[:9].ljust(9, "0"),
)
"""Ids come back as they were; with letters replaced when the model is named after Claude, cut to nine when after one
of Mistral's, where several of an answer can become the same."""


class _OfOneId:
    """The calls of an answer that have one id, by names and arguments, each of which is read once, whatever they are
    compared with; what came back of several may be made of several."""

    def __init__(self, calls: Sequence[tuple[str, str]]) -> None:
        self._several = len(calls) > 1
        self._own = {name for name, _ in calls}
        self._names = self._own | {name.lower() for name in self._own}
        self._texts = {arguments for _, arguments in calls}

    def came_back_as(self, echo: Wire) -> bool:
        """Whether a call of an echo may be of these."""
        name, text = echo["name"], echo["arguments"]
        named = name in self._names or (self._several and name == _INVALID)
        if not named and name != _INVALID:
            return False
        if named and text in self._texts:
            return True
        try:
            given = parse_json(text)
        except ValueError:
            return False
        if (self._several or name == _INVALID) and _refused_name(given) in self._own:
            return True
        if not named:
            return False
        key = written(given)
        # A beginning comes wrapped, or is an object, and there may be hundreds of one text.
        return key in self._whole or (isinstance(given, dict) and key in self._begun)

    @cached_property
    def _whole(self) -> frozenset[str]:
        return frozenset(written(value) for text in self._texts for value in _inputs(text))

    @cached_property
    def _begun(self) -> frozenset[str]:
        # In a stream, a call is complete as soon as what has come of its arguments is JSON.
        begun = (value for text in self._texts for value in beginnings(text))
        return frozenset(written(_wrapped(value)) for value in begun)


def _inputs(arguments: str) -> Iterator[Any]:
    """Yield what a tool may get for whole arguments: nothing is {}, and what is not an object is wrapped in one."""
    if not arguments.strip(JAVASCRIPT_SPACE):
        yield {}
    with suppress(ValueError):
        yield _wrapped(parse_json(arguments))
    # Under a name of another case, what could not be read comes as a text.
    yield _wrapped(arguments)


def _wrapped(value: Any) -> Any:
    return value if isinstance(value, dict) else {"value": value}


def _refused_name(given: Any) -> Any:
    """The tool that a call of `invalid` names, by its arguments: there is none of that name, or they were not JSON, or
    had a key `__proto__`."""
    refused = isinstance(given, dict) and given.keys() == {"tool", "error"}
    return given["tool"] if refused and all(isinstance(value, str) for value in given.values()) else None


_SPACE = " \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
JAVASCRIPT_SPACE = f"{_SPACE}\u205f\u3000\ufeff"
"""What `String.prototype.trim` takes off."""

_LONGEST_NUMBER = 400
"""Digits after which a number is too large, or its last digits no longer count."""

MOST_COMMAS = 20_000
"""A text of more is not read: an agent's could hold a loop, and no answer of 32,000 tokens has as many."""


def _number(text: str) -> float | None:
    number = float(text)
    return number + 0.0 if math.isfinite(number) else None


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_no_json)


def _bounded(text: str) -> str:
    if text.count(",") > MOST_COMMAS:
        raise ValueError("more values than are read here")
    return text


def parse_json(text: str) -> Any:
    """The value that JavaScript reads, as it would write it.

    Raises:
        ValueError: it is not what JavaScript reads.
    """
    try:
        return _decoder.decode(_bounded(text))
    except RecursionError:
        raise ValueError("nested deeper than can be read here") from None


def beginnings(text: str) -> Iterator[Any]:
    """The values of all texts with which a text begins and that are JSON themselves, the shortest first."""
    start = len(text) - len(text.lstrip(" \t\n\r"))
    try:
        value, end = _decoder.raw_decode(_bounded(text), start)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict | list | str | bool) or text.startswith("null", start):
        yield value
        return
    for length in range(start + 1, min(end, start + _LONGEST_NUMBER) + 1):
        with suppress(ValueError):  # a sign, or a number without its last digit
            yield parse_json(text[:length])


def written(value: Any) -> str:
    """A text that is the same for values that are equal; unlike in Python, true is not 1."""
    return json.dumps(value, sort_keys=True)
