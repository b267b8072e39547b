"""Comparison agrees with the rules that Prime Intellect published, wherever an answer is honest."""

import builtins
import json
from decimal import Decimal, InvalidOperation
from typing import Any

import pytest
from agent_sandbox.programs import program_text
from hypothesis import given, settings
from hypothesis import strategies as st
from opencode_rubrics.code.problem import same_output, same_result
from opencode_rubrics.code_tests import _IMPORTED, with_imports


def published_output(printed: str, expected: str) -> bool:
    """Their rule for standard output, as the reference tells it: the first of four that holds."""
    if printed.strip() == expected.strip():
        return True
    lines = [[line.strip() for line in text.splitlines() if line.strip()] for text in (printed, expected)]
    if lines[0] == lines[1]:
        return True
    if [line.split() for line in lines[0]] == [line.split() for line in lines[1]]:
        return True
    try:
        numbers = [[Decimal(word) for word in text.split()] for text in (printed, expected)]
    except InvalidOperation:
        return False
    if len(numbers[0]) != len(numbers[1]):
        return False
    return all(abs(one - other) <= Decimal("0.001") for one, other in zip(*numbers, strict=True))


def published_result(returned: Any, expected: Any) -> bool:
    """Their rule for functions."""
    return bool(returned == expected or (isinstance(expected, list) and expected and returned == expected[0]))


WORDS = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.floats(-100, 100, allow_nan=False).map(lambda x: f"{x:.6f}"),
    st.sampled_from(["YES", "no", "1e3", "-0.0005", "1.0005", "+2", ".5", "3."]),
)
SPACES = st.sampled_from([" ", "  ", "\n", "\n\n", "\t", " \n"])


@st.composite
def outputs(draw: st.DrawFn) -> tuple[str, str]:
    words = draw(st.lists(WORDS, max_size=6))
    changed = [draw(st.sampled_from([word, word, word, f"{word} ", draw(WORDS)])) for word in words]
    return tuple("".join(word + draw(SPACES) for word in one) for one in (changed, words))  # type: ignore[return-value]


@settings(max_examples=400, deadline=None)
@given(outputs())
def test_output_is_judged_as_published(pair: tuple[str, str]) -> None:
    assert same_output(*pair, 1e-3) == published_output(*pair)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, 1.0, "a", "1"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab1"), inner, max_size=2)),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES)
def test_results_are_judged_as_published(one: Any, other: Any) -> None:
    for returned, expected in ((one, other), (one, one), (one, [one]), ([one], one)):
        assert same_result(returned, expected) == published_result(returned, expected)


def test_strictness_and_tolerance_are_options() -> None:
    assert same_output("0.5002 1\n", "0.5\n1", 1e-3)
    assert not same_output("0.5002 1\n", "0.5\n1", 1e-4)
    assert not same_output("a  b\n", "a b", 1e-3, strict=True)
    assert same_output(" a b\n\n", "a b", 0.0, strict=True)
    assert not same_output("", "0", 1e9)
    assert not same_output("nan", "1", 1e9)
    assert same_result([1], [[1]])
    assert not same_result([1], [[1]], strict=True)
    assert not same_result(None, [])
    assert same_result([float("nan"), {"a": float("inf")}], [float("nan"), {"a": float("inf")}])
    assert not same_result(float("nan"), None)


def caller() -> dict[str, Any]:
    """The names in the program that calls a solution's function, which is not started."""
    names: dict[str, Any] = {}
    exec(program_text("call_function.py", "opencode_rubrics").rpartition("\nmain()")[0], names)
    return names


class Array:
    """A value of a library's own type."""

    def tolist(self) -> list[int]:
        return [1, 2]


@settings(max_examples=200, deadline=None)
@given(st.recursive(VALUES | st.text() | st.floats(allow_nan=False), lambda inner: st.lists(inner, max_size=3)))
def test_a_result_is_written_as_json(value: Any) -> None:
    assert json.loads(caller()["_json"](value)) == value


def test_results_of_other_types_are_written_as_what_they_hold() -> None:
    names = caller()
    assert json.loads(names["_json"]({1: (2, Array()), "x": {}})) == {"1": [2, [1, 2]], "x": {}}
    assert names["_json"](float("nan")) == "NaN"
    with pytest.raises(TypeError, match="set has no form"):
        names["_json"]({1, 2})
    assert names["_with_whole_keys"]({"1": "a"}) == {1: "a"}
    assert names["_with_whole_keys"]({"x": "a"}) == {"x": "a"}


def test_only_what_an_answer_mentions_is_imported_for_it() -> None:
    plain = "print(int(input()) * 2)"
    assert with_imports(plain) == plain
    assert with_imports("def f(x: List[int]): return math.gcd(*x)").splitlines()[0] == (
        "import math; from typing import *; from math import *; from builtins import pow"
    )
    assert with_imports("\ufeffprint(1)") == "print(1)"
    future = '"""Doc."""\nfrom __future__ import annotations\nmath.pi'
    assert with_imports(future) == future
    assert "numpy" not in with_imports("np = 3")
    for code in ("np.array([1])", "heappush(a, deque())"):
        compile(with_imports(code), "answer.py", "exec")


def test_no_import_takes_the_place_of_a_builtin() -> None:
    names: dict[str, Any] = {}
    exec(with_imports(f"found = {[*_IMPORTED]}").splitlines()[0], names)
    assert names.keys() >= _IMPORTED.keys()
    changed = {name for name in names.keys() & vars(builtins).keys() if names[name] is not getattr(builtins, name)}
    assert not changed
