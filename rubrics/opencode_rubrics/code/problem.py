"""The tests of one programming problem, in the one form that tasks carry, and whether what a program printed, or a
function returned, is what they expect.

Invariant: JSON-safe, and never whole in a sandbox: a program gets the input of one test at a time, and no output."""

import math
import random
import re
from decimal import Decimal
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_serializer, field_validator

_FLOAT = "$float"
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")


class CodeTest(BaseModel):
    """One test: what goes in, and what should come out."""

    model_config = ConfigDict(frozen=True)

    input: JsonValue
    """Text for standard input; for a function, the list of its arguments."""
    output: JsonValue
    """Text of standard output; for a function, what it returns."""

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
    tests: list[CodeTest] = Field(min_length=1)
    total: int = Field(ge=1)
    """How many tests the problem has, those that were not drawn included."""

    def sampled(self, most: int, identity: str) -> Self:
        """At most so many of the tests, in their order; which, follows from the row's identity alone."""
        if len(self.tests) <= most:
            return self
        drawn = sorted(random.Random(identity).sample(range(len(self.tests)), most))
        return self.model_copy(update={"tests": [self.tests[index] for index in drawn]})


def same_output(printed: str, expected: str, tolerance: float, *, strict: bool = False) -> bool:
    """Whether the texts agree, apart from white space around them. Unless `strict`, also if their lines that are not
    empty agree, or the words of each line, or if all words of both are decimals that differ by at most `tolerance`,
    wherever the lines break."""
    if printed.strip() == expected.strip():
        return True
    if strict:
        return False
    if [line.split() for line in _lines(printed)] == [line.split() for line in _lines(expected)]:
        return True
    words = printed.split(), expected.split()
    return len(words[0]) == len(words[1]) and all(_close(*pair, tolerance) for pair in zip(*words, strict=True))


def same_result(returned: JsonValue, expected: JsonValue, *, strict: bool = False) -> bool:
    """Whether the values are equal as JSON; unless `strict`, also if `expected` is a list that begins with the value:
    datasets often wrap it once more."""
    if _equal(returned, expected):
        return True
    return not strict and isinstance(expected, list) and bool(expected) and _equal(returned, expected[0])


def _equal(one: JsonValue, other: JsonValue) -> bool:
    return one == other or repr(one) == repr(other)  # NaN is expected where it is written


def _lines(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if line.strip()]


def _close(one: str, other: str, tolerance: float) -> bool:
    if not (_DECIMAL.fullmatch(one) and _DECIMAL.fullmatch(other)):
        return False
    return abs(Decimal(one) - Decimal(other)) <= Decimal(str(tolerance))
