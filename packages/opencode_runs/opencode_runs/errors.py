"""The errors of this distribution.

CommandError
├── BadInputError
├── NothingUsableError
└── WorkerDiedError
ValueError
├── LineError
│   └── VersionError
└── BrokenGraphError
"""

NOTHING_USABLE, BAD_INPUT = 1, 2
"""Exit codes: readable, but nothing to answer with; wrong usage or input."""


class CommandError(Exception):
    """Base of the errors that end a command with one line."""

    exit_code = BAD_INPUT


class BadInputError(CommandError):
    """A path, option or file that is not what the command needs; the message says what to change."""


class NothingUsableError(CommandError):
    """The input was readable but holds nothing to answer with (no attempt, no match, no rated row)."""

    exit_code = NOTHING_USABLE


class WorkerDiedError(CommandError):
    """A process of ours was ended from outside."""

    def __init__(self) -> None:
        super().__init__("one of its processes was ended from outside, perhaps for want of memory")


class LineError(ValueError):
    """A line that is not an episode; `torn` if it is not even whole JSON."""

    def __init__(self, message: str, *, torn: bool = False) -> None:
        super().__init__(message)
        self.torn = torn
        self.unended = False
        """Whether no line's end follows it: it is still being written, or its writer was killed."""


class VersionError(LineError):
    """An episode of a trace schema this command cannot read."""


class BrokenGraphError(ValueError):
    """A node that hangs on itself, on a later node or on none there is: no branch can be walked."""
