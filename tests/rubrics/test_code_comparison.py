"""Comparison agrees with the rules that Prime Intellect published, but where those reward what is wrong."""

import builtins
import json
import sys
import time
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opencode_rubrics.code_problem import CodeTest, same_output, same_result, tagged
from opencode_rubrics.code_tests import PROMISED, with_imports
from rollout_sandbox.programs import program_text


@pytest.fixture(autouse=True)
def recursion_limit() -> Iterator[None]:
    """The prelude that is run here raises this process's, under which a deep JSON text can end it."""
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)


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
def test_output_is_right_only_as_published_and_with_their_tolerance_as_often(pair: tuple[str, str]) -> None:
    assert same_output(*pair, 1e-9, 1e-6) <= published_output(*pair)
    if not all(word.lstrip("+-").isdigit() for word in " ".join(pair).split()):
        # Words have at most six decimals: a difference of exactly 0.001 is a little more as a float.
        assert same_output(*pair, 1.0000001e-3, 0) == published_output(*pair)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, 1.0, "a", "1"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab1"), inner, max_size=2)),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES)
def test_results_are_judged_as_published_where_outputs_are_wrapped(one: Any, other: Any) -> None:
    for returned, expected in ((one, other), (one, one), (one, [one]), ([one], one)):
        also = "element" if isinstance(expected, list) and len(expected) == 1 else None
        right = same_result(returned, CodeTest(input=[], output=expected, also=also))
        assert right <= published_result(returned, expected)
        assert right == published_result(returned, expected) or (isinstance(expected, list) and len(expected) > 1)


def result(returned: Any, expected: Any, **options: Any) -> bool:
    """Whether a function returned what is expected."""
    also = options.pop("also", None)
    return same_result(returned, CodeTest(input=[], output=expected, also=also), **options)


def test_the_first_element_of_a_list_is_not_the_list() -> None:
    assert not result(1, [1, 2], also="element")
    assert not result(1, [1])
    assert not result([1], [[1], [2]], also="element")
    assert result([1], [[1]], also="element")
    assert result(1, [1], also="element")
    assert not result(1, [1], also="element", strict=True)


@pytest.mark.parametrize(
    ("printed", "expected", "right"),
    [
        ("0", "0.00042", False),
        ("0.00042", "0.00042000001", True),
        ("0.0004199", "0.00042", False),
        ("3.14159265", "3.14159274", True),
        ("3.1415", "3.14159274", False),
        ("1000000008", "1000000007", False),
        ("9007199254740993", "9007199254740992", False),
        ("1000000007.5", "1000000007", False),
        ("2.9999999999", "3", True),
        ("+007", "7", True),
        ("1e-10", "0", True),
        ("0.0000001", "0", False),
        ("9" * 991_000 + "e9999", "1.5", False),
        ("9" * 5000, "7", False),
        ("1", "1e9999", False),
        ("1.5\nx", "1.5 x", False),
        ("a  b\n\nc", "a b\nc", True),
        ("1 2 3", "1 2", False),
    ],
)
def test_numbers_are_close_by_a_billionth_or_a_millionth_of_what_is_expected(
    printed: str, expected: str, right: bool
) -> None:
    assert same_output(printed, expected, 1e-9, 1e-6) == right
    assert not same_output(printed, expected, 1e-9, 1e-6, strict=True)


def test_strictness_and_tolerance_are_options() -> None:
    assert same_output("0.5002 1\n", "0.5\n1", 1e-3, 0)
    assert not same_output("0.5002 1\n", "0.5\n1", 1e-4, 0)
    assert same_output("0.5002 1\n", "0.5\n1", 0, 1e-3)
    assert not same_output("a  b\n", "a b", 1e-3, 0, strict=True)
    assert same_output(" a b\n\n", "a b", 0.0, 0, strict=True)
    assert not same_output("", "0", 1e9, 0)
    assert not same_output("nan", "1", 1e9, 0)
    assert not result(None, [])
    assert result([float("nan"), {"a": float("inf")}], [float("nan"), {"a": float("inf")}])
    assert not result(float("nan"), None)


def test_a_text_of_digits_is_a_number_as_well_only_where_the_dataset_does_not_tell() -> None:
    for returned in (999, "999"):
        assert result(returned, "999", also="value")
        assert result(returned, "999") == (returned == "999")
        assert result(returned, 999) == (returned == 999)
    assert not result(999, "999", also="value", strict=True)


HOSTILE_PRINTS = {
    "one long number": lambda n: "1" * n,
    "a number with an exponent": lambda n: "9" * (n - 5) + "e9999",
    "many numbers": lambda n: "0.1 " * (n // 4),
    "many lines": lambda n: "1\n" * (n // 2),
    "blanks": lambda n: " \x1c" * (n // 2) + "x",
    "points": lambda n: "1." * (n // 2),
}


@pytest.mark.parametrize("kind", HOSTILE_PRINTS)
def test_comparing_takes_time_in_proportion_to_what_was_printed(kind: str) -> None:
    for expected in ("0.5", HOSTILE_PRINTS[kind](1 << 18) + " 7", "0.2 " * (1 << 16)):
        least, twice, base = (cpu_of(HOSTILE_PRINTS[kind](size), expected) for size in SIZES)
        assert twice <= 3 * (least + base), (kind, least, twice)


SIZES = (1 << 19, 1 << 20, 1 << 16)


def cpu_of(printed: str, expected: str) -> float:
    """The least CPU of this thread that comparing took in many tries, in seconds."""
    found = []
    for _ in range(20):
        began = time.thread_time()
        same_output(printed, expected, 1e-9, 1e-6)
        found.append(time.thread_time() - began)
    return min(found)


@pytest.mark.parametrize(
    ("returned", "expected", "right"),
    [
        ((1, 2), (1, 2), True),
        ([1, 2], (1, 2), False),
        ({3, 1, 2}, {1, 2, 3}, True),
        ([1, 2, 3], {1, 2, 3}, False),
        ({1: (2,), "a": None}, {"a": None, 1: (2,)}, True),
        ({"1": 2}, {1: 2}, False),
        ({"tuple": [1]}, (1,), False),
        (True, 1, True),
        (2.0, 2, True),
        ([float("nan")], [float("nan")], False),
        ([(1, [2])], [(1, [2])], True),
        ([(1, [2])], [(1, (2,))], False),
        (frozenset({1}), {1}, True),
        ({1, 2}, {1}, False),
    ],
)
def test_an_assertion_tells_lists_tuples_sets_and_tables_apart(returned: Any, expected: Any, right: bool) -> None:
    written = json.loads(caller()["_json"](returned, True))
    assert same_result(written, CodeTest(input="", output=tagged(expected)), exact=True) == right
    assert not same_result([{"set": [[1]]}], CodeTest(input="", output=tagged([{1}])), exact=True)
    assert not same_result({"set": 1}, CodeTest(input="", output=tagged({1})), exact=True)


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
    deep = "import sys; sys.setrecursionlimit(600000)"
    plain = "print(int(input()) * 2)"
    assert with_imports(plain) == with_imports(f"\ufeff{plain}") == f"{deep}\n{plain}"
    assert with_imports("def f(x: List[int]): return math.gcd(*x)").splitlines()[0] == (
        f"{deep}; from typing import *; from builtins import *; import math"
    )
    assert with_imports("datetime.datetime.now(), bisect([1], 0)").splitlines()[0] == (
        f"{deep}; from bisect import *; from builtins import *; import datetime"
    )
    assert with_imports("x.count(3).gcd").splitlines()[0] == deep
    future = '"""Doc."""\nfrom __future__ import annotations\nmath.pi'
    assert with_imports(future) == future
    assert "numpy" not in with_imports("np = 3")
    for code in ("np.array([1])", "heappush(a, deque())"):
        compile(with_imports(code), "answer.py", "exec")


# What references use of the names that LiveCodeBench's and APPS' graders, and the prompts of LeetCode's rows, import.
USED = "pairwise accumulate groupby zip_longest inf lcm comb factorial xor or_ ascii_lowercase Counter List Deque count"
USED += " bisect_left bisect insort heapreplace cmp_to_key cache median loads StringIO stdin timedelta batched deepcopy"


def test_every_name_that_the_datasets_promise_is_there() -> None:
    for name in USED.split():
        assert name in PROMISED
        names: dict[str, Any] = {}
        exec(with_imports(f"try: made = {name}\nexcept NameError: assert {sys.version_info < (3, 12)}"), names)
        assert "made" in names or name == "batched"
    for module in ("itertools", "math", "operator", "statistics", "typing", "heapq"):
        public = [name for name in dir(__import__(module)) if not name.startswith("_")]
        assert {*getattr(__import__(module), "__all__", public)} <= PROMISED.keys() | vars(builtins).keys()


def test_no_import_takes_the_place_of_a_builtin() -> None:
    names: dict[str, Any] = {}
    code = with_imports(f"found = {[*PROMISED]}; pow(2, -1, 5); open; abs; compile".replace("'", ""))
    exec(code.splitlines()[0], names)
    changed = {name for name in names.keys() & vars(builtins).keys() if names[name] is not getattr(builtins, name)}
    assert len(names) > len(vars(builtins)) + 300
    assert not changed - {"__doc__", "__name__", "__loader__", "__package__", "__spec__", "__build_class__"}
