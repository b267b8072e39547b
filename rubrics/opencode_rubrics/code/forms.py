"""Reads a row's tests from the forms that public datasets keep them in, told by their shape.

    {"inputs": […], "outputs": […], "fn_name"?}        INTELLECT-3 (below `tests`), APPS, TACO, DeepCoder
    [{"input", "output", "type"|"testtype", …}, …]      DeepCoder, LiveCodeBench; SYNTHETIC-1, open-r1 (`test_cases`)
    {"input": […], "output": […]}                       CodeContests
    base64 of a compressed pickle of the second          LiveCodeBench's private tests

Any of them may be JSON text, and a table may hold it below `tests` or `test_cases`. Nothing of a pickle is run: only
instructions that put a text or bytes on the stack, remember it and stop are known here; any other (a list, a class, a
call) refuses the whole, and sizes are bounded before anything is unpacked.
"""

import ast
import base64
import contextlib
import json
import pickletools
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_sandbox.surrogates import has_lone_surrogate
from pydantic import ValidationError

from opencode_rubrics.code.problem import CodeTest, CodeTests

_BESIDE = (("public_test_cases", "private_test_cases"), ("public_tests", "private_tests", "generated_tests"))
"""Columns that hold one problem's tests together."""
_FUNCTION_KINDS = ("function_call", "functional", "function")
_STDIN_KINDS = ("stdin_stdout", "stdin")
_SHOWN = 60
"""Characters of a wrong value in a message."""
MAX_BYTES = 256 << 20
"""The most that a row's tests may be, unpacked."""

_CONSTANTS = frozenset(
    f"{size}{kind}" for size in ("SHORT_BIN", "BIN", "") for kind in ("UNICODE", "UNICODE8", "BYTES", "BYTES8")
)
_SURROUNDINGS = frozenset(("PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"))


class _Case(NamedTuple):
    given: object
    expected: object
    function: str | None


def test_columns(key: str, names: Sequence[str] | Mapping[str, object]) -> list[str]:
    """The columns in which a problem's tests are, if one of them is `key`."""
    group = next((group for group in _BESIDE if key in group), (key,))
    return [name for name in group if name in names]


def read_code_tests(row: Mapping[str, object], key: str) -> CodeTests | None:
    """The tests in column `key` of a row, and in the columns that belong to it; None if they are empty. A `ValueError`,
    whose message goes on from the column's name, if they have no known form, or differ in what they test."""
    cases = [case for name in test_columns(key, row) for case in _cases(row[name], _named(row.get("metadata")))]
    if not cases:
        return None
    functions = {case.function for case in cases}
    if len(functions) > 1:
        told = sorted("a program" if name is None else name[:_SHOWN] for name in functions)
        raise ValueError(f"mixes tests of {' and '.join(told)}: make a row of each")
    (function,) = functions
    if function is not None and not function.isidentifier():
        raise ValueError(f"names the function {function[:_SHOWN]!r}, which is not a name in Python")
    read = _text_test if function is None else _call_test
    return CodeTests(function=function, tests=[read(case) for case in cases], total=len(cases))


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
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for number, case in enumerate(value, start=1):
            if not isinstance(case, Mapping) or not {"input", "output"} <= case.keys():
                raise ValueError(f"holds as test {number} no table with input and output")
            yield _Case(case["input"], case["output"], _function_of(case, function))
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
            yield from (_Case(*pair, name) for pair in zip(inputs, outputs, strict=True))
            return
    raise ValueError(f"holds tests in no known form (a table of {', '.join(sorted(map(str, value)))[:_SHOWN]})")


def _function_of(case: Mapping[Any, object], function: str | None) -> str | None:
    kind = case.get("type") or case.get("testtype")
    name = case.get("fn_name") or function
    if kind in _STDIN_KINDS or (kind is None and not case.get("fn_name")):
        return None
    if kind is not None and kind not in _FUNCTION_KINDS:
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


def _call_test(case: _Case) -> CodeTest:
    given = case.given
    if isinstance(given, str):
        arguments = [_literal(line) for line in given.split("\n") if line.strip()]
    elif isinstance(given, Sequence):
        arguments = list(given)
    else:
        raise ValueError(f"holds the arguments of a function as {type(given).__name__}")
    expected = _literal(case.expected) if isinstance(case.expected, str) else case.expected
    try:
        return CodeTest.model_validate_json(json.dumps({"input": arguments, "output": expected}))
    except ValidationError as error:
        raise ValueError(f"holds what JSON has no form for: {error.errors()[0]['msg']}") from error
    except TypeError as error:
        raise ValueError(f"holds what JSON has no form for: {error}") from error


def _literal(text: str) -> object:
    """A value of JSON, or of Python; text that is neither is itself."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            if "integer string conversion" in str(error):  # a number, and as text it would be another test
                raise ValueError(f"holds a number of over {sys.get_int_max_str_digits()} digits") from error
    return text


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
    return _text_of(data) if data[:1] == b"\x80" else data.decode()


def _text_of(pickled: bytes) -> str:
    found: list[str | bytes] = []
    for instruction, argument, _ in pickletools.genops(pickled):
        if instruction.name in _CONSTANTS and isinstance(argument, str | bytes):
            found.append(argument)
        elif instruction.name not in _SURROUNDINGS:
            raise ValueError(f"holds a pickle with the instruction {instruction.name}: only one text is read of it")
    if len(found) != 1:
        raise ValueError(f"holds a pickle of {len(found)} texts")
    return found[0].decode() if isinstance(found[0], bytes) else found[0]
