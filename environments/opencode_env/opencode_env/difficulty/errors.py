"""What ends a command early: each error is one clear line and one exit code.

Invariant: a raised `DifficultyError` means that no file was written and none was changed.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How `opencode-difficulty` ends."""

    OK = 0
    """The answer was given; warnings, if any, are on stderr."""
    NOTHING_USABLE = 1
    """The input was readable, but holds nothing to answer with (no attempt, no match, no rated row)."""
    BAD_INPUT = 2
    """Wrong usage, or an input that cannot be read as what it should be."""


class DifficultyError(Exception):
    """Base of the errors that end a command with one line."""

    exit_code = ExitCode.BAD_INPUT


class BadInputError(DifficultyError):
    """A path, option or file that is not what the command needs; the message says what to change."""


class NothingUsableError(DifficultyError):
    """The input was readable but holds nothing to answer with."""

    exit_code = ExitCode.NOTHING_USABLE
