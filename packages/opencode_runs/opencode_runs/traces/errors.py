"""What ends a command early: each error is one clear line and one exit code.

Invariant: a raised `CommandError` means that no file was written and none was changed.
"""

OK, NOTHING_USABLE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: answered; readable, but nothing to answer with; wrong usage or input; Ctrl-C."""


class CommandError(Exception):
    """Base of the errors that end a command with one line."""

    exit_code = BAD_INPUT


class BadInputError(CommandError):
    """A path, option or file that is not what the command needs; the message says what to change."""


class NothingUsableError(CommandError):
    """The input was readable but holds nothing to answer with (no attempt, no match, no rated row)."""

    exit_code = NOTHING_USABLE
