"""JSON objects in every spelling that a model may give them and no serialiser would, and texts that are not objects."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

_NUMBERS = [
    *["0", "-0", "-0.0", "5000.0", "5e3", "1E+2", "0.1e1", "1.50", "0.1", "123e-7", "1e21", "1e-7", "-1.0e-10"],
    *["12345678901234567890", "123456789012345680", "9007199254740993", "-9007199254740993", "1" + "0" * 23],
    *["1e400", "-1e400", "1e-400", "5e-324", "1.7976931348623157e308", "1.7976931348623159e308", "1" + "0" * 310],
]
_TEXTS = [
    *['"x"', '""', '" x "', '"\\u00e9\\/\\n"', '"e\u0301"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00\\ud83d"'],
    *['"\\u0000"', '"\u2028\u00a0"', '"\ufeff"', '"\\u2028"', '"<|im_end|>"', '"\\"__proto__\\":"', '"{\\"a\\":1.0}"'],
]
_SCALARS = [*_NUMBERS, *_TEXTS, "null", "true", "false"]
_KEYS = [
    *['"x"', '"1"', '"10"', '"2"', '"-1"', '"01"', '"4294967295"'],
    *['"\\u0078"', '"a b"', '""', '"\\u0000"', '"\ufeffx"'],
    *['"constructor"', '"toString"', '"prototype"', '"hasOwnProperty"', '"then"', '"toJSON"', '"length"', '"$ref"'],
    *['"value"', '"tool"', '"error"', '"e\u0301"', '"\\u00e9"', '"\\ud83d"'],
]

space = st.sampled_from(["", "", " ", "\n", "\t ", " \r\n "])


def spelled(text: str, escaped: bool) -> str:
    """A JSON string, with some letters escaped or none."""
    quoted = json.dumps(text)
    return quoted.replace("echo", "\\u0065cho").replace("/", "\\/") if escaped else quoted


@st.composite
def listed(draw: Any, parts: Sequence[str], brackets: str = "[]") -> str:
    """Members of a list or an object, with blanks between them."""
    gap: list[str] = [draw(space) for _ in range(4)]
    return f"{brackets[0]}{gap[0]}{f'{gap[1]},{gap[2]}'.join(parts)}{gap[3]}{brackets[1]}"


@st.composite
def spelled_object(draw: Any, members: Sequence[tuple[str, str]], depth: int = 0) -> str:
    """An object of these members (spelled keys and values), in any order, and odd ones between them."""
    odd = draw(st.lists(st.tuples(st.sampled_from(_KEYS), spelled_value(depth + 1)), max_size=3))
    parts = [f"{key}{draw(space)}:{draw(space)}{value}" for key, value in draw(st.permutations([*members, *odd]))]
    text: str = draw(listed(parts, "{}"))
    return text


def spelled_value(depth: int = 0) -> st.SearchStrategy[str]:
    """Any value, objects and lists up to three deep."""
    scalars = st.sampled_from(_SCALARS)
    if depth > 2:
        return scalars
    inner = st.deferred(lambda: spelled_value(depth + 1))
    return st.one_of(
        scalars, scalars, st.lists(inner, max_size=3).flatmap(listed), st.deferred(lambda: spelled_object((), depth))
    )


NO_OBJECT = ["", " ", "\ufeff", "null", "true", "5", "5.0", "[1]", '"x"', "[]", '{"a": 1}]', "NaN", "-", '"']
"""Arguments that are nothing, or JSON and no object, or hardly either."""

BROKEN = [
    *["{", "{}}", "not JSON", "{'command': 1}", "\ufeff{}", "{}\x00", '{"a" 1}', "{,}", '{"a":}', "{a: 1}"],
    *['{"command": NaN}', '{"command": -Infinity}', '{"command": "a\nb"}', '{"command": "a\tb"}', '{"command": "a",}'],
    *['{"a": 01}', '{"a": 1.}', '{"a": .5}', '{"a": +1}', '{"a": 0x10}'],
    *['{"a": [1,,2]}', '{"a": [1,]}', '{"a": "\\x"}'],
    *['{"a": 1}{"a": 2}', '{"a": 1} and more', '```json\n{"a": 1}\n```', '{"a": /* b */ 1}', '{"a": undefined}'],
    *['{"__proto__": {"a": 1}, "command": "echo no"}', '{"\\u005f_proto__": 1}', '{"a": {"b": [{"__proto__": 1}]}}'],
    *['{"a": {"constructor": {"prototype": 1}}}', '{"constructor": {"prototype": {}}}'],
]
"""Arguments with which no tool can run."""

DEEP = [
    *['{"a":' + "[" * 400 + "]" * 400 + "}", '{"a": ' + '{"b": ' * 150 + "1.0" + "}" * 150 + "}"],
    *['{"a":' + "[ " * 3000 + "] " * 3000 + "}", '{"a":' + "[" * 20_000],
]
"""Arguments that nest deep, some of them deeper than can be read."""
