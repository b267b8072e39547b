"""What the commands have in common: a type of options, their lines, their exit codes."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

try:
    import torch
except ModuleNotFoundError:
    sys.exit("a policy that learns needs torch: `make setup-learn`, or install any from 2.6 on")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number from `least` on."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return read


def say(text: str) -> None:
    """Print it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def exit_code(work: Coroutine[Any, Any, bool]) -> int:
    """Do the work: 0 if all of it was right, 1 if not, 130 if it was interrupted."""
    logging.getLogger("verifiers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    try:
        return 0 if asyncio.run(work) else 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # `uv run` passes on what the terminal sent already
        say("interrupted")
        return 130
