"""Programs of `swe-tests` that run inside a sandbox, as `rollout_sandbox.programs` starts them."""

from rollout_sandbox.programs import program_argv, program_text

_OWNER = "opencode_rubrics.swe"


def text_of(name: str) -> str:
    """The text of the program with this file name."""
    return program_text(name, _OWNER)


def argv_of(name: str, *operands: str) -> list[str]:
    """The argument vector that runs the shell program `name` with `operands`."""
    return program_argv(f"{name}.sh", *operands, owner=_OWNER)
