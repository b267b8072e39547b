"""The tests of one programming problem, in the one form that tasks carry.

Invariant: JSON-safe, and never whole in a sandbox: a program gets the input of one test at a time, and no output."""

import math
import random
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_serializer, field_validator

_FLOAT = "$float"


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
