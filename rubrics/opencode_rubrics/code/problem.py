"""The tests of one programming problem, in the one form that tasks carry, and whether what a program printed, or a
function returned, is what they expect.

Invariant: JSON-safe, and never whole in a sandbox: a program gets the input of one test at a time, and no output."""

import ast
import json
import math
import random
import re
import sys
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_serializer, field_validator

_FLOAT = "$float"
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DIGITS = 1000
"""A longer word is compared as text."""


class CodeTest(BaseModel):
    """One test: what goes in, and what should come out."""

    model_config = ConfigDict(frozen=True)

    input: JsonValue
    """Text for standard input; for a function, the list of its arguments, or their text as in a call in Python."""
    output: JsonValue
    """Text of standard output; for a function, what it returns (see `CodeTests.exact`)."""
    also: Literal["element", "value"] | None = None
    """What is right as well, because the dataset does not tell: the one element of the list `output`, which may wrap
    it, or the value that the text `output` writes."""

    @field_serializer("input", "output", when_used="json")
    def _written(self, value: Any) -> Any:
        """JSON has no number for NaN and infinity: a table with their name stands for them."""
        if isinstance(value, float) and not math.isfinite(value):
            return {_FLOAT: repr(value)}
        if isinstance(value, list):
            return [self._written(one) for one in value]
        return {key: self._written(one) for key, one in value.items()} if isinstance(value, dict) else value

    @field_validator("input", "output", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [cls._read(one) for one in value]
        if not isinstance(value, dict):
            return value
        named = value.get(_FLOAT) if value.keys() == {_FLOAT} else None
        return float(named) if named in ("nan", "inf", "-inf") else {key: cls._read(one) for key, one in value.items()}


class CodeTests(BaseModel):
    """The tests of a problem; the field `code_tests` of task data."""

    model_config = ConfigDict(frozen=True)

    function: str | None = None
    """The function that is called; None: a program that reads standard input."""
    exact: bool = False
    """Whether lists, tuples, sets and tables are told apart, as assertions do: outputs are in the form of `tagged`."""
    tests: list[CodeTest] = Field(min_length=1)
    total: int = Field(ge=1)
    """How many tests the problem has, those that were not drawn included."""

    def sampled(self, most: int, identity: str) -> Self:
        """At most so many of the tests, in their order; which, follows from the row's identity alone."""
        if len(self.tests) <= most:
            return self
        drawn = sorted(random.Random(identity).sample(range(len(self.tests)), most))
        return self.model_copy(update={"tests": [self.tests[index] for index in drawn]})


def literal(text: str) -> Any:
    """A value of JSON, or of Python; text that is neither is itself.

    Raises:
        ValueError: it holds a number of too many digits.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            if "integer string conversion" in str(error):  # a number, and as text it would be another test
                raise ValueError(f"holds a number of over {sys.get_int_max_str_digits()} digits") from error
    return text


def tagged(value: object) -> JsonValue:
    """A literal of Python as JSON that tells its kinds apart: a table of one entry, "tuple", "set" or "dict" (pairs),
    stands for what is not a list. `call_function.py` writes results in this form.

    Raises:
        TypeError: it holds anything else, such as bytes.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {"dict": [[tagged(key), tagged(item)] for key, item in value.items()]}
    for kind, name in ((tuple, "tuple"), (set, "set")):
        if isinstance(value, kind):
            return {name: [tagged(item) for item in value]}
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} is not JSON serializable")
    return [tagged(item) for item in value]


def same_output(printed: str, expected: str, tolerance: float, relative: float, *, strict: bool = False) -> bool:
    """Whether the texts agree, apart from white space around them. Unless `strict`, also if their lines that are not
    empty agree in their words, or if all words of both are decimals, wherever the lines break: equal where both are
    whole numbers, else with a difference of at most `tolerance`, or of `relative` as a share of what is expected (of 1
    at most where that is a whole number).

    Takes time in proportion to the texts, and looks at no more words than are expected.
    """
    if printed.strip() == expected.strip():
        return True
    wanted = expected.split()
    words = printed.split(None, len(wanted))
    if strict or len(words) != len(wanted):
        return False
    if words == wanted and _lines(printed) == _lines(expected):
        return True
    return all(_close(*pair, tolerance, relative) for pair in zip(words, wanted, strict=True))


def same_result(returned: JsonValue, test: CodeTest, *, exact: bool = False, strict: bool = False) -> bool:
    """Whether a function returned what `test` expects, as JSON; unless `strict`, or what is `also` right."""
    if exact:
        return _same_kinds(returned, test.output)
    if _equal(returned, test.output):
        return True
    if strict or test.also is None:
        return False
    if test.also == "element":
        return isinstance(test.output, list) and len(test.output) == 1 and _equal(returned, test.output[0])
    return isinstance(test.output, str) and _equal(returned, literal(test.output))


def _equal(one: JsonValue, other: JsonValue) -> bool:
    if one == other:
        return True
    wanted = repr(other)
    return "nan" in wanted and repr(one) == wanted  # NaN is expected where it is written


def _same_kinds(one: Any, other: Any) -> bool:
    """Whether values in the form of `tagged` are equal; as deep as the second goes, and no deeper."""
    if isinstance(other, dict):
        ((kind, items),) = other.items()
        if not isinstance(one, dict) or one.keys() != other.keys() or not isinstance(one[kind], list):
            return False
        theirs = one[kind]
        if kind != "tuple" and len(theirs) == len(items):
            theirs, items = sorted(theirs, key=json.dumps), sorted(items, key=json.dumps)
        return _same_kinds(theirs, items)
    if isinstance(other, list):
        return isinstance(one, list) and len(one) == len(other) and all(map(_same_kinds, one, other))
    return not isinstance(one, dict | list) and bool(one == other)


def _lines(text: str) -> list[list[str]]:
    return [words for line in text.splitlines() if (words := line.split())]


def _close(one: str, other: str, tolerance: float, relative: float) -> bool:
    if not (_DECIMAL.fullmatch(one) and _DECIMAL.fullmatch(other)):
        return False
    size = abs(float(other))
    if max(len(one), len(other)) > _DIGITS or math.isinf(size):
        return one == other
    whole = _WHOLE.fullmatch(other) is not None
    if whole and _WHOLE.fullmatch(one):
        return int(one) == int(other)
    return abs(float(one) - float(other)) <= max(tolerance, relative * (min(size, 1.0) if whole else size))
