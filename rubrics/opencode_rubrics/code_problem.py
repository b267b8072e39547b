"""The tests of one programming problem: the one form that tasks carry, the forms that public datasets keep them in, and
whether what a program printed, or a function returned, is what they expect.

    {"inputs": […], "outputs": […], "fn_name"?}        INTELLECT-3 (below `tests`), APPS, TACO, DeepCoder
    [{"input", "output", "type"|"testtype", …}, …]      DeepCoder, LiveCodeBench; SYNTHETIC-1, open-r1 (`test_cases`)
    {"input": […], "output": […]}                       CodeContests
    base64 of a compressed pickle of the second          LiveCodeBench's private tests
    assert f(1) == 2 (a list of them, or `def check`)    MBPP (`test_list`); HumanEval, LeetCode (`test`)

A row's form is told by its shape; any may be JSON text, and a table may hold it below `tests` or `test_cases`.

Invariant: nothing of a pickle is run: only instructions that put a text or bytes on the stack, remember it and stop are
known here; any other (a list, a class, a call) refuses the whole, and sizes are bounded before anything is unpacked.
Nor is an assertion run: it must compare a call of the function with a literal. Tests are JSON-safe, and never whole in
a sandbox: a program gets the input of one test at a time, and no output.
"""

import ast
import base64
import contextlib
import json
import math
import pickletools
import random
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_serializer, field_validator
from rollout_sandbox.surrogates import has_lone_surrogate

_FLOAT = "$float"
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DIGITS = 1000
"""A longer word is compared as text."""
_BESIDE = (("public_test_cases", "private_test_cases"), ("public_tests", "private_tests", "generated_tests"))
"""Columns that hold one problem's tests together."""
_SHOWN = 60
"""Characters of a wrong value in a message."""
_ASSERTS = re.compile(r"^\s*(?:assert\b|def check\()", re.MULTILINE)
_INFINITE = {"inf": math.inf, "float('inf')": math.inf, "-inf": -math.inf, "float('-inf')": -math.inf}
MAX_BYTES = 256 << 20
"""The most that a row's tests may be, unpacked."""

_CONSTANTS = frozenset(
    f"{size}{kind}" for size in ("SHORT_BIN", "BIN", "") for kind in ("UNICODE", "UNICODE8", "BYTES", "BYTES8")
)
_SURROUNDINGS = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))


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
        """Return at most so many of the tests, in their order; which, follows from the row's identity alone."""
        if len(self.tests) <= most:
            return self
        drawn = sorted(random.Random(identity).sample(range(len(self.tests)), most))
        return self.model_copy(update={"tests": [self.tests[index] for index in drawn]})


def literal(text: str) -> Any:
    """A value of JSON, or of Python; text that is neither is itself. A `ValueError` for a number of too many digits."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            if "integer string conversion" in str(error):  # a number, and as text it would be another test
                raise ValueError(f"holds a number of over {sys.get_int_max_str_digits()} digits") from error
    return text


def tagged(value: object) -> JsonValue:
    """A literal of Python as JSON that tells its kinds apart: a table of one entry, "tuple", "set" or "dict" (pairs),
    stands for what is not a list. `call_function.py` writes results in this form. A `TypeError` if it holds anything
    else, such as bytes."""
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
    at most where that is a whole number). It takes time in proportion to the texts."""
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


class _Case(NamedTuple):
    given: object
    expected: object
    function: str | None
    asserted: bool = False
    """Whether `given` is the text of a call's arguments, and `expected` the value of a literal."""
    wraps: bool = False
    """Whether this form often wraps what a function returns in one more list."""


def test_columns(key: str, names: Sequence[str] | Mapping[str, object]) -> list[str]:
    """The columns in which a problem's tests are, if one of them is `key`."""
    group = next((group for group in _BESIDE if key in group), (key,))
    return [name for name in group if name in names]


def read_code_tests(row: Mapping[str, object], key: str) -> CodeTests | None:
    """The tests in column `key` of a row, and in the columns that belong to it; None if they are empty. A `ValueError`,
    whose message goes on from the column's name, if they have no known form, or differ in what they test."""
    named = _named(row.get("metadata")) or _entry_point(row)
    cases = [case for name in test_columns(key, row) for case in _cases(row[name], named)]
    if not cases:
        return None
    functions = {case.function for case in cases}
    if len(functions) > 1:
        told = sorted("a program" if name is None else name[:_SHOWN] for name in functions)
        raise ValueError(f"mixes tests of {' and '.join(told)}: make a row of each")
    (function,) = functions
    if function is None and (entry := _entry_point(row)):
        raise ValueError(
            f"does not say whether it tests a program or {entry[:_SHOWN]!r}: name the column of assertions"
        )
    if function is not None and not function.isidentifier():
        raise ValueError(f"names the function {function[:_SHOWN]!r}, which is not a name in Python")
    exact = cases[0].asserted
    tests = [_text_test(case) for case in cases] if function is None else _call_tests(cases)
    return CodeTests(function=function, exact=exact, tests=tests, total=len(cases))


def _entry_point(row: Mapping[str, object]) -> str | None:
    """The function that HumanEval's and LeetCode's rows name, a method of `Solution` among them."""
    named = row.get("entry_point")
    return named.removeprefix("Solution().") if isinstance(named, str) and named else None


def _named(metadata: object) -> str | None:
    """The function that LiveCodeBench's metadata name; other datasets keep other things in a column of that name."""
    with contextlib.suppress(ValueError, RecursionError):
        metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    named = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return named if isinstance(named, str) and named else None


def _parsed(value: object) -> object:
    """The value of JSON text, or of packed JSON text; anything else as it is."""
    if not isinstance(value, str) or not value.strip():
        return value or None
    try:
        return json.loads(value)
    except ValueError as error:
        if _ASSERTS.search(value):
            return [value]
        if value.lstrip()[0] in "[{" and (found := literal(value)) is not value:
            return found
        text = unpacked(value, error)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"holds packed tests that are not JSON: {error}") from error


def _cases(value: object, function: str | None) -> Iterator[_Case]:
    """The tests in a value of any form."""
    value = _parsed(value)
    if value is None:
        return
    if isinstance(value, Mapping):
        yield from _of_table(value, function)
    elif isinstance(value, list) and value and all(isinstance(part, str) and _ASSERTS.search(part) for part in value):
        yield from _asserted("\n".join(value), function)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for number, case in enumerate(value, start=1):
            if not isinstance(case, Mapping) or not {"input", "output"} <= case.keys():
                raise ValueError(f"holds as test {number} no table with input and output")
            called = _function_of(case, _named(case.get("metadata")) or function)
            yield _Case(case["input"], case["output"], called, wraps=case.get("testtype") is None)
    elif isinstance(value, str):
        raise ValueError("holds JSON text within JSON text, or plain text: decode it once more")
    else:
        raise ValueError(f"holds tests in no known form ({type(value).__name__})")


def _of_table(value: Mapping[Any, object], function: str | None) -> Iterator[_Case]:
    for nested in ("tests", "test_cases"):
        if value.get(nested) is not None:
            yield from _cases(value[nested], function)
            return
    for given, expected in (("inputs", "outputs"), ("input", "output")):
        inputs, outputs = value.get(given), value.get(expected)
        if isinstance(inputs, Sequence) and isinstance(outputs, Sequence) and not isinstance(inputs, str):
            if len(inputs) != len(outputs):
                raise ValueError(f"holds {len(inputs)} {given} and {len(outputs)} {expected}")
            name = str(value["fn_name"]) if value.get("fn_name") else function
            yield from (_Case(*pair, name, wraps=True) for pair in zip(inputs, outputs, strict=True))
            return
    raise ValueError(f"holds tests in no known form (a table of {', '.join(sorted(map(str, value)))[:_SHOWN]})")


def _function_of(case: Mapping[Any, object], function: str | None) -> str | None:
    kind = case.get("type") or case.get("testtype")
    name = case.get("fn_name") or function
    if kind in ("stdin_stdout", "stdin") or (kind is None and not case.get("fn_name")):
        return None
    if kind is not None and kind not in ("function_call", "functional", "function"):
        raise ValueError(f"holds a test of the unknown kind {repr(kind)[:_SHOWN]}")
    if not name:
        raise ValueError("holds tests of a function without its name (fn_name, or func_name in `metadata`)")
    return str(name)


def _text_test(case: _Case) -> CodeTest:
    return CodeTest(input=_text("" if case.given is None else case.given), output=_text(case.expected))


def _text(value: object) -> str:
    lines = [value] if isinstance(value, str | bytes) or not isinstance(value, Sequence) else value
    for line in lines:
        if not isinstance(line, str | int | float):
            raise ValueError(f"holds {type(line).__name__} where a test of a program has its text")
        if isinstance(line, str) and has_lone_surrogate(line):
            raise ValueError("holds a lone surrogate, which no program can read or print")
    return "\n".join(map(str, lines))


def _call_tests(cases: list[_Case]) -> list[CodeTest]:
    """The tests of a function. What the form leaves open is told by all of them: outputs are wrapped only if each is a
    list of one element, and texts write values only if the inputs are texts as well and each can be read so."""
    texts = [case.expected for case in cases if isinstance(case.expected, str)]
    written = all(isinstance(case.given, str) for case in cases) and all(literal(text) is not text for text in texts)
    wrapped = all(case.wraps and isinstance(case.expected, list) and len(case.expected) == 1 for case in cases)
    return [_call_test(case, written, wrapped) for case in cases]


def _call_test(case: _Case, written: bool, wrapped: bool) -> CodeTest:
    given, expected, also = case.given, case.expected, "element" if wrapped else None
    if isinstance(given, str) and not case.asserted:
        given = [literal(line) for line in given.split("\n") if line.strip()]
    elif not isinstance(given, str | Sequence):
        raise ValueError(f"holds the arguments of a function as {type(given).__name__}")
    try:
        if case.asserted:
            expected = tagged(expected)
        elif isinstance(expected, str) and written:
            expected = literal(expected)
        elif isinstance(expected, str) and literal(expected) is not expected:
            also = "value"
        return CodeTest.model_validate_json(json.dumps({"input": given, "output": expected, "also": also}))
    except ValidationError as error:
        raise ValueError(f"holds what JSON has no form for: {error.errors()[0]['msg']}") from error
    except TypeError as error:
        raise ValueError(f"holds what JSON has no form for: {error}") from error


def _asserted(text: str, function: str | None) -> Iterator[_Case]:
    """The tests in assertions: those of `check(candidate)`, where that is defined, else those on their own."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"holds assertions that are not Python: {error}") from error
    check = next((part for part in body if isinstance(part, ast.FunctionDef) and part.name == "check"), None)
    if check is None:
        yield from (_compared(part, None, function) for part in body)
        return
    candidate = check.args.args[0].arg if check.args.args else None
    if function is None:
        raise ValueError("holds assertions about a candidate without its name (`entry_point`)")
    for part in check.body:
        said = part.test if isinstance(part, ast.Assert) else part.value if isinstance(part, ast.Expr) else part
        if not isinstance(said, ast.Constant | ast.Pass):
            yield _compared(part, candidate, function)


def _compared(part: ast.stmt, candidate: str | None, function: str | None) -> _Case:
    """The test in `assert CALL == LITERAL`, either way round; `candidate` stands for the function."""
    test = part.test if isinstance(part, ast.Assert) else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        for call, value in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if candidate is None or call.func.id == candidate:
                with contextlib.suppress(ValueError):
                    name = function if candidate else call.func.id
                    return _Case(_arguments(call), _value(value), name, asserted=True)
    raise ValueError(f"holds more than comparisons of a call with a literal: {ast.unparse(part)[:_SHOWN]!r}")


def _arguments(call: ast.Call) -> str:
    """The text of a call's arguments, all of them literals."""
    for value in (*call.args, *(named.value for named in call.keywords)):
        _value(value)
    if any(named.arg is None for named in call.keywords):
        raise ValueError("holds a table as arguments")
    return ", ".join(map(ast.unparse, (*call.args, *call.keywords)))


def _value(node: ast.expr) -> object:
    return _INFINITE[text] if (text := ast.unparse(node)) in _INFINITE else ast.literal_eval(node)


def unpacked(text: str, problem: Exception | None = None) -> str:
    """The JSON text in `text`, which was tried as JSON and had that problem; a `ValueError` if it is not packed in this
    way, is too large, or the pickle holds more than one text."""
    try:
        packed = base64.b64decode("".join(text.split()), validate=True)
        unzip = zlib.decompressobj()
        data = unzip.decompress(packed, MAX_BYTES)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"is neither JSON ({problem}) nor base64 of compressed tests ({error})") from error
    if unzip.unconsumed_tail:
        raise ValueError(f"holds over {MAX_BYTES} bytes of tests")
    if not unzip.eof:
        raise ValueError("holds compressed tests that are cut off")
    if data[:1] != b"\x80":
        return data.decode()
    found: list[str | bytes] = []
    for instruction, argument, _ in pickletools.genops(data):
        if instruction.name in _CONSTANTS and isinstance(argument, str | bytes):
            found.append(argument)
        elif instruction.name not in _SURROUNDINGS:
            raise ValueError(f"holds a pickle with the instruction {instruction.name}: only one text is read of it")
    if len(found) != 1:
        raise ValueError(f"holds a pickle of {len(found)} texts")
    return found[0].decode() if isinstance(found[0], bytes) else found[0]
