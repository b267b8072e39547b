"""Calls the function of a solution for one test: `python call_function.py SOLUTION FUNCTION`.

Reads a JSON object {"key", "arguments"} from standard input and writes one line there and back: the key, then the
result as JSON. What the solution prints goes nowhere, and it gets no input. It runs in this very process, so it can say
what it returned, and nothing else: nobody here knows what is expected.
"""

import json
import os
import sys
from types import ModuleType
from typing import Any


def _plain(value: Any) -> Any:
    """A value of a library's own number or array type, as one of Python's."""
    for name in ("tolist", "item"):
        convert = getattr(value, name, None)
        if convert is not None:
            return convert()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _with_whole_keys(argument: Any) -> Any:
    """JSON has made texts of the keys of a table."""
    try:
        return {int(key): value for key, value in argument.items()}
    except ValueError:
        return argument


def main() -> None:
    """Call it once."""
    path, name = sys.argv[1:]
    given = json.loads(sys.stdin.buffer.read())
    arguments = given["arguments"]
    if len(arguments) == 1 and isinstance(arguments[0], dict):
        arguments = [_with_whole_keys(arguments[0])]
    answer, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    solution = sys.modules["solution"] = ModuleType("solution")
    solution.__file__ = path
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), solution.__dict__)
    holder = solution.Solution() if hasattr(solution, "Solution") else solution
    line = f"{given['key']}{json.dumps(getattr(holder, name)(*arguments), default=_plain)}\n".encode()
    while line:
        line = line[os.write(answer, line) :]


main()
