"""Runs one attack, and reports at the end what it came to."""

import contextlib
import signal
import sys
from collections.abc import Callable

from benchmarks.attack import gateway, machine
from benchmarks.attack.tally import Tally

SECONDS = 90.0

ATTACKS: dict[str, Callable[[Tally], None]] = {
    "busy": machine.busy,
    "processes": machine.processes,
    "memory": machine.memory,
    "disk": machine.disk,
    "descriptors": machine.descriptors,
    "connections": gateway.connections,
    "requests": gateway.requests,
    "logs": machine.logs,
}


class Ended(Exception):
    """The attack is over."""


def _end(*_: object) -> None:
    # Once: what comes while the children are ended must not end the ending.
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    raise Ended


def main(name: str) -> None:
    """Attack until SIGTERM, then report."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    tally = Tally()
    with contextlib.suppress(Ended):
        ATTACKS[name](tally)
    tally.print()


if __name__ == "__main__":
    main(sys.argv[1])
