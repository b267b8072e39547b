"""Tests of programming problems in every form of the public datasets, and nothing run that they hold."""

import base64
import json
import math
import pickle
import subprocess
import zlib
from typing import Any

import pytest
from opencode_rubrics import CodeTest, CodeTests, CodeTestsConfig, code_problem
from opencode_rubrics.code_problem import read_code_tests

ADD = {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]}
TEXTS = [CodeTest(input="1 2\n", output="3\n"), CodeTest(input="5\n8", output="13")]
CALLS = [CodeTest(input=[1, 2], output=3), CodeTest(input=[3, 4], output=7)]
CASES = [{"input": test.input, "output": test.output} for test in TEXTS]


def pack(value: Any) -> str:
    """As LiveCodeBench does."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def kinds(name: str, kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [{**case, name: kind, **fields} for case in CASES]


SPLIT = {"inputs": ["1 2\n", ["5", "8"]], "outputs": ["3\n", "13"]}
VERIFIED = {"language": "python", "test_cases": kinds("type", "stdin_stdout", fn_name=None)}
PROGRAMS: dict[str, dict[str, Any]] = {
    "INTELLECT-3": {"info": json.dumps({"source": "x", "tests": json.dumps(SPLIT)})},
    "APPS and TACO": {"input_output": json.dumps({"inputs": ["1 2\n", "5\n8"], "outputs": ["3\n", "13"]})},
    "DeepCoder primeintellect": {"tests": json.dumps(kinds("type", "stdin_stdout"))},
    "DeepCoder lcbv5": {"tests": json.dumps(kinds("testtype", "stdin")), "metadata": {"func_name": None}},
    "SYNTHETIC-1": {"verification_info": json.dumps(VERIFIED)},
    "open-r1": {"verification_info": VERIFIED},
    "LiveCodeBench": {
        "private_test_cases": pack(json.dumps(kinds("testtype", "stdin")[1:])),
        "public_test_cases": json.dumps(kinds("testtype", "stdin")[:1]),
        "metadata": "{}",
    },
    "CodeContests": {
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": [], "output": []},
        "generated_tests": {"input": ["5\n8"], "output": ["13"]},
    },
}
"""Rows whose first column is the one that is named."""
CALL_CASES = [{"input": "1\n2", "output": "3"}, {"input": "3\n4", "output": "7"}]
CALLED = [{**case, "type": "function_call", "fn_name": "add"} for case in CALL_CASES]
FUNCTIONAL = [{**case, "testtype": "functional"} for case in CALL_CASES]
WRITTEN = {"fn_name": "add", "inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"]}
FUNCTIONS: dict[str, dict[str, Any]] = {
    "INTELLECT-3": {"info": json.dumps({"tests": json.dumps(WRITTEN)})},
    "APPS and TACO": {"input_output": json.dumps(ADD)},
    "DeepCoder primeintellect": {"tests": json.dumps(CALLED)},
    "DeepCoder lcbv5": {"tests": json.dumps(FUNCTIONAL), "metadata": {"func_name": "add"}},
    "SYNTHETIC-1": {"verification_info": {"test_cases": CALLED}},
    "LiveCodeBench": {
        "private_test_cases": pack(json.dumps(FUNCTIONAL)),
        "public_test_cases": "[]",
        "metadata": json.dumps({"func_name": "add"}),
    },
}


@pytest.mark.parametrize("row", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_are_read_in_every_form(row: dict[str, Any]) -> None:
    assert read_code_tests(row, next(iter(row))) == CodeTests(tests=TEXTS, total=2)


@pytest.mark.parametrize("row", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_are_read_in_every_form(row: dict[str, Any]) -> None:
    assert read_code_tests(row, next(iter(row))) == CodeTests(function="add", tests=CALLS, total=2)


def test_arguments_are_literals_of_json_or_of_python() -> None:
    tests = {"fn_name": "f", "inputs": ['true\n"a b"\n[1, null]', "{1: (2, None)}\nTrue"], "outputs": ["[1]", "word"]}
    found = read_code_tests({"tests": tests}, "tests")
    assert found is not None
    assert [test.input for test in found.tests] == [[True, "a b", [1, None]], [{"1": [2, None]}, True]]
    assert [(test.output, test.also) for test in found.tests] == [("[1]", "value"), ("word", None)]


def outputs(tests: Any, **row: Any) -> list[tuple[Any, str | None]]:
    """What each test of a row expects, and what is right as well."""
    found = read_code_tests({"tests": tests, **row}, "tests")
    assert found is not None
    return [(test.output, test.also) for test in found.tests]


def test_only_lists_of_one_in_every_test_of_a_form_that_wraps_are_taken_for_wrapped() -> None:
    table = {"fn_name": "f", "inputs": [[1], [2]]}
    assert outputs({**table, "outputs": [[3], [[4]]]}) == [([3], "element"), ([[4]], "element")]
    assert outputs({**table, "outputs": [[3], [4, 5]]}) == [([3], None), ([4, 5], None)]
    assert outputs({**table, "outputs": [[3], 4]}) == [([3], None), (4, None)]
    called = [{"type": "function_call", "fn_name": "f", "input": [1], "output": [3]}]
    assert outputs(called) == [([3], "element")]
    functional = [{"testtype": "functional", "input": "1", "output": "[3]", "metadata": {"func_name": "f"}}]
    assert outputs(functional) == [([3], None)]


def test_a_text_is_a_value_where_all_is_text_and_both_where_the_form_does_not_tell() -> None:
    assert outputs({"fn_name": "f", "inputs": ["1", "2"], "outputs": ["999", '"999"']}) == [(999, None), ("999", None)]
    assert outputs({"fn_name": "f", "inputs": [["1"]], "outputs": ["999"]}) == [("999", "value")]
    assert outputs({"fn_name": "f", "inputs": [["1"]], "outputs": ["ab c"]}) == [("ab c", None)]
    assert outputs({"fn_name": "f", "inputs": [[1]], "outputs": [["999"]]}) == [(["999"], "element")]


def test_deepcoders_cases_name_their_function_each_and_may_be_text_of_python() -> None:
    case = {"input": "1\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "add"}}
    found = read_code_tests({"tests": json.dumps([case])}, "tests")
    assert found == CodeTests(function="add", tests=CALLS[:1], total=1)
    assert read_code_tests({"tests": str([case])}, "tests") == found


CHECKS = """
METADATA = {'author': 'x'}

def check(candidate):
    '''Nothing but literals.'''
    assert candidate(nums = [1, 2], target = -3) == [0, 1], "two"
    assert True, "reached"
    assert (1, {2}) == candidate((1,), {1: "a"})
    assert candidate(float('inf'), "a\\nb") == -inf
"""


def test_assertions_are_read_as_calls_and_literals() -> None:
    row = {"test": CHECKS, "entry_point": "Solution().twoSum", "starter_code": "…"}
    found = read_code_tests(row, "test")
    assert found is not None
    assert (found.function, found.exact, found.total) == ("twoSum", True, 3)
    assert [(test.input, test.output) for test in found.tests] == [
        ("[1, 2], target=-3".replace("[", "nums=["), [0, 1]),
        ("(1,), {1: 'a'}", {"tuple": [1, {"set": [2]}]}),
        ("float('inf'), 'a\\nb'", -math.inf),
    ]
    listed = read_code_tests({"test_list": ["assert add(1, 2) == 3", "assert add(3, 4)==(7)"]}, "test_list")
    assert listed is not None
    assert (listed.function, [(test.input, test.output) for test in listed.tests]) == (
        "add",
        [("1, 2", 3), ("3, 4", 7)],
    )
    assert read_code_tests({"t": json.dumps(["assert add(1, 2) == 3"])}, "t") is not None


@pytest.mark.parametrize(
    "line",
    [
        "assert candidate(2)",
        "assert not candidate(2)",
        "assert abs(candidate(2) - 0.1) < 1e-6",
        "assert set(candidate(2)) == {1}",
        "assert candidate(other(2)) == 1",
        "assert candidate(*[2]) == 1",
        "assert candidate(**{'a': 2}) == 1",
        "assert candidate(2) == other(1)",
        "assert candidate(2) == candidate(1)",
        "assert candidate(2) != 1",
        "assert 1 < candidate(2) == 2",
        "assert other(2) == 1",
        "for n in range(3): assert candidate(n) == n",
        "print(candidate(2))",
    ],
)
def test_any_other_assertion_refuses_its_row(line: str) -> None:
    row = {"test": f"def check(candidate):\n    assert candidate(1) == 1\n    {line}\n", "entry_point": "f"}
    with pytest.raises(ValueError, match="more than comparisons of a call with a literal"):
        read_code_tests(row, "test")


def test_assertions_that_name_no_function_or_are_not_python_are_refused() -> None:
    one = "def check(candidate):\n    assert candidate(1) == 1"
    with pytest.raises(ValueError, match="candidate without its name"):
        read_code_tests({"test": one}, "test")
    with pytest.raises(ValueError, match="not Python"):
        read_code_tests({"test": "assert f(1) == == 1"}, "test")
    with pytest.raises(ValueError, match="mixes tests of add and sub"):
        read_code_tests({"test": ["assert add(1) == 1", "assert sub(1) == 1"]}, "test")
    with pytest.raises(ValueError, match="JSON has no form for: bytes"):
        read_code_tests({"test": ["assert add(1) == b'1'"]}, "test")
    cases = [{"input": "n = 2", "output": "3"}]
    with pytest.raises(ValueError, match="a program or 'f': name the column of assertions"):
        read_code_tests({"input_output": cases, "entry_point": "Solution().f"}, "input_output")


REFUSED = {
    "holds 2 inputs and 1 outputs": {"inputs": ["1", "2"], "outputs": ["3"]},
    "no known form": {"question": 1},
    "without its name": [{"input": "1", "output": "2", "type": "function_call"}],
    "unknown kind 'interactive'": [{"input": "1", "output": "2", "type": "interactive"}],
    "no table with input and output": [{"input": "1"}],
    "mixes tests of": [CASES[0], {"input": "1", "output": "2", "fn_name": "f"}],
    "neither JSON .* nor base64 of": "two and two is four",
    "NoneType where a test of a program": {"inputs": ["1"], "outputs": [None]},
    "list where a test of a program": {"inputs": [["1", ["2"]]], "outputs": ["3"]},
    "bytes where a test of a program": {"inputs": [[b"1"]], "outputs": ["3"]},
    "a lone surrogate": {"inputs": ["\ud800"], "outputs": ["3"]},
    "JSON has no form": {"fn_name": "f", "inputs": ["{1, 2}"], "outputs": ["1"]},
    "no form for: Invalid JSON": {"fn_name": "f", "inputs": [["\ud800"]], "outputs": ["1"]},
    r"unknown kind \['stdin'\]": [{"input": "1", "output": "2", "type": ["stdin"]}],
    "unknown kind '9{59}$": [{"input": "1", "output": "2", "type": "9" * 5000}],
    "bytes where a test of": {"inputs": [b"1"], "outputs": ["3"]},
    "JSON text within JSON text": json.dumps(json.dumps(CASES)),
    "packed tests that are not JSON": pack("[1"),
    "number of over 4300 digits": "[" + "9" * 5000 + "]",
    "a number of over 4300 digits": {"fn_name": "f", "inputs": ["9" * 5000], "outputs": ["1"]},
    r"names the function \"\['f'\]\", which is not a name": {"fn_name": ["f"], "inputs": [[1]], "outputs": [1]},
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_in_no_known_form_is_refused(why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_code_tests({"tests": REFUSED[why]}, "tests")


@pytest.mark.parametrize("metadata", ["Codeforces 4A", "[1", "", None, 7, {"func_name": None}, "{}", "[" * 9999])
def test_metadata_of_another_kind_are_none_of_the_tests(metadata: Any) -> None:
    found = read_code_tests({"tests": kinds("type", "stdin"), "metadata": metadata}, "tests")
    assert found == CodeTests(tests=TEXTS, total=2)
    numbers = read_code_tests({"tests": {"inputs": [None, [2, 1.5]], "outputs": [3, ["4"]]}}, "tests")
    assert numbers is not None
    assert numbers.tests == [CodeTest(input="", output="3"), CodeTest(input="2\n1.5", output="4")]


@pytest.mark.parametrize("empty", [None, "", "[]", {"inputs": [], "outputs": []}])
def test_no_tests_are_none(empty: Any) -> None:
    assert read_code_tests({"tests": empty}, "tests") is None


class Runs:
    """What a pickle runs when it is loaded without care."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return subprocess.getoutput, ("touch /tmp/a-pickle-was-run",)


@pytest.mark.parametrize("value", [Runs(), ["[]"], {"a": "b"}, 7, None])
def test_a_pickle_of_anything_but_one_text_is_refused_and_not_run(value: Any) -> None:
    with pytest.raises(ValueError, match="pickle"):
        code_problem.unpacked(pack(value))


def test_packed_tests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_problem.unpacked(pack(b'["x"]')) == '["x"]'
    assert code_problem.unpacked(base64.b64encode(zlib.compress(b"[1]")).decode()) == "[1]"
    whole = base64.b64decode(pack("x" * 10_000))
    with pytest.raises(ValueError, match="cut off"):
        code_problem.unpacked(base64.b64encode(whole[:-8]).decode())
    monkeypatch.setattr(code_problem, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="over 1000 bytes"):
        code_problem.unpacked(base64.b64encode(whole).decode())


def test_a_sample_follows_from_the_identity_alone() -> None:
    many = CodeTests(tests=[CodeTest(input=str(n), output="") for n in range(40)], total=40)
    drawn = many.sampled(15, "a-row")
    assert (len(drawn.tests), drawn.total) == (15, 40)
    assert drawn == many.sampled(15, "a-row") != many.sampled(15, "another-row")
    numbers = [int(str(test.input)) for test in drawn.tests]
    assert numbers == sorted(numbers) == [2, 3, 5, 8, 9, 10, 13, 14, 17, 18, 20, 21, 33, 36, 39]
    assert many.sampled(40, "a-row") is many


BUILD = ["g++", "-o", "{binary}", "{program}"]


@pytest.mark.parametrize(
    "options",
    [
        {"command": ["python3"]},
        {"command": ["sh", "-c", "python3 {program}"]},
        {"command": ["{binary}"]},
        {"compile_command": BUILD},
        {"compile_command": ["g++", "-o{binary}", "{program}"], "command": ["{binary}"]},
    ],
)
def test_a_command_that_would_not_run_the_answer_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must hold \{\w+\}.*word of its own"):
        CodeTestsConfig(**options)


def test_numbers_that_json_lacks_come_through_it() -> None:
    test = CodeTest(input=[math.nan, {"a": [-math.inf, 1.5]}, "nan"], output=math.inf)
    tests = CodeTests(function="f", tests=[test], total=1)
    for read in (CodeTests.model_validate_json(tests.model_dump_json()), CodeTests(**tests.model_dump(mode="json"))):
        assert repr(read) == repr(tests)
    assert CodeTest(input={"$float": "wide"}, output=[]).input == {"$float": "wide"}
