"""Programs that run inside a sandbox, shipped as files in a folder `programs` of the package that starts them.

A shell program travels as the text argument of `sh -c` with its operands as arguments: nothing is written to the
sandbox's disk, where an agent could have replaced it, and no operand is ever parsed as shell.
"""

from functools import cache
from importlib.resources import files

_OWN = "rollout_sandbox"


@cache
def program_text(name: str, owner: str = _OWN) -> str:
    """The text of the file `name` in the folder `programs` of the package `owner`."""
    return (files(owner) / "programs" / name).read_text(encoding="utf-8")


def program_argv(name: str, *operands: str, owner: str = _OWN) -> list[str]:
    """The argument vector that runs the shell program in the file `name` with `operands`."""
    return ["sh", "-c", program_text(name, owner), name.removesuffix(".sh").replace("_", "-"), *operands]
