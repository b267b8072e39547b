"""Shell programs that run in the sandbox of a `run_rollout`, shipped as files; see
`opencode_rubrics.sandbox.programs`."""

from functools import cache
from importlib.resources import files

__all__ = ["program_argv"]


@cache
def _text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.sh").read_text(encoding="utf-8")


def program_argv(name: str, *operands: str) -> list[str]:
    """The argument vector that runs the shipped program `name` (without `.sh`) with `operands`."""
    return ["sh", "-c", _text(name), name.replace("_", "-"), *operands]
