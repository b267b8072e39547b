"""Calls the function of a solution for one test: `python call_function.py SOLUTION FUNCTION [exact]`.

Reads a key, a line break and the text of a call's arguments from standard input; writes one line there and back: the
key, then the result as JSON. With `exact`, tuples, sets and tables are told apart from lists, as in `tagged`. What the
solution prints goes nowhere, and it gets no input. It runs in this very process, so it can say what it returned, and
nothing else: nobody here knows what is expected. No library but `os` and `sys` is loaded: others cost as much as a
small test, and not every image has them.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` would cost more than all else together
if TYPE_CHECKING:
    from typing import Any


def _json(value: Any, exact: bool = False) -> str:
    """A result as JSON; numbers and arrays of libraries as Python's own. What has no form there is a `TypeError`."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        names = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
        return names.get(repr(value), (int if isinstance(value, int) else float).__repr__(value))
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    if isinstance(value, (list, tuple)) or (exact and isinstance(value, (set, frozenset))):
        listed = f"[{','.join([_json(item, exact) for item in value])}]"
        kind = "" if isinstance(value, list) or not exact else "tuple" if isinstance(value, tuple) else "set"
        return f'{{"{kind}":{listed}}}' if kind else listed
    if isinstance(value, dict) and exact:
        return f'{{"dict":{_json([[*pair] for pair in value.items()], exact)}}}'
    if isinstance(value, dict):
        return f"{{{','.join(f'{_json(str(key))}:{_json(item)}' for key, item in value.items())}}}"
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return _json(getattr(value, name)(), exact)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _character(one: str) -> str:
    if " " <= one <= "~" and one not in '"\\':
        return one
    units = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _with_whole_keys(argument: Any) -> Any:
    """JSON has made texts of the keys of a table."""
    try:
        return {int(key): value for key, value in argument.items()}
    except ValueError:
        return argument


def main() -> None:
    """Call it once."""
    path, name, *exact = sys.argv[1:]
    key, _, given = sys.stdin.read().partition("\n")
    names = {"inf": float("inf"), "nan": float("nan"), "call": lambda *given, **named: ([*given], named)}
    arguments, named = eval(f"call({given})", names)
    if not exact and len(arguments) == 1 and isinstance(arguments[0], dict):
        arguments = [_with_whole_keys(arguments[0])]
    answer, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    solution: Any = type(sys)("solution")
    sys.modules["solution"] = solution
    solution.__file__ = path
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), solution.__dict__)
    method = hasattr(getattr(solution, "Solution", None), name)
    holder = solution.Solution() if method else solution
    line = f"{key}{_json(getattr(holder, name)(*arguments, **named), bool(exact))}\n".encode()
    while line:
        line = line[os.write(answer, line) :]


main()
