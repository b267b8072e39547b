"""Programs that run inside a sandbox, shipped as files."""

from functools import cache
from importlib.resources import files


@cache
def text_of(name: str) -> str:
    """The text of the program with this file name."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def argv_of(name: str, *operands: str) -> list[str]:
    """The argument vector that runs a shell program with `operands`; nothing is written to the sandbox's disk."""
    return ["sh", "-c", text_of(f"{name}.sh"), name.replace("_", "-"), *operands]
