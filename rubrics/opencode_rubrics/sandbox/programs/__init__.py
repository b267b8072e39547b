"""Shell programs that run inside a sandbox, shipped as files.

A program travels as the text argument of `sh -c` with its operands as arguments: nothing is written to the
sandbox's disk, where an agent could have replaced it, and no operand is ever parsed as shell.
"""

from functools import cache
from importlib.resources import files

__all__ = ["call_function", "program_argv", "program_text"]


@cache
def program_text(name: str) -> str:
    """The text of the shipped program `name` (without `.sh`)."""
    return files(__name__).joinpath(f"{name}.sh").read_text(encoding="utf-8")


def program_argv(name: str, *operands: str) -> list[str]:
    """The argument vector that runs the shipped program `name` (without `.sh`) with `operands`."""
    return ["sh", "-c", program_text(name), name.replace("_", "-"), *operands]


@cache
def call_function() -> bytes:
    """The Python program that calls the function of a solution (see its docstring)."""
    return files(__name__).joinpath("call_function.py").read_bytes()
