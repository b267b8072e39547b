"""Several processes that do parts of one work; their answers come in the order of the parts.

They are forked from this one, so that they start at once, share its memory and hash texts as it does. Each ends with
the pipe that this process holds. Where there is one processor, or no fork, the work is done here.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Self

from opencode_runs.traces.errors import CommandError

MOST = 4
"""Processes; each takes memory."""


def processors() -> int:
    """How many processes are worth having: those that may run at once, and few."""
    return min(MOST, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1


class WorkerDiedError(CommandError):
    """A process of ours was ended from outside."""

    def __init__(self) -> None:
        super().__init__("one of its processes was ended from outside, perhaps for want of memory")


class Workers:
    """Processes that do `work`, one item at a time each."""

    def __init__(self, count: int, work: Callable[[Any], Any]) -> None:
        self._work = work
        self._pids: list[int] = []
        self._idle: list[Connection[Any, Any]] = []
        self._busy: dict[Connection[Any, Any], int] = {}
        for _ in range(count if count > 1 else 0):
            self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in [*self._idle, *self._busy]:
            pipe.close()
        for pid in self._pids:
            os.waitpid(pid, 0)

    def results(self, count: int, item: Callable[[int], Any], after: Callable[[int], int]) -> Iterator[Any]:
        """The results of `count` items, in order.

        Args:
            item: makes the item of a number; it is asked for in order.
            after: how many results must have been taken before the item of a number can be made.

        Raises:
            WorkerDiedError: a process ended.
            Exception: what the work raised.
        """
        if not self._pids:
            for number in range(count):
                yield self._work(item(number))
            return
        sent, done = 0, dict[int, Any]()
        for taken in range(count):
            while True:
                while self._idle and sent < count and after(sent) <= taken:
                    self._send(sent, item(sent))
                    sent += 1
                if taken in done:
                    break
                done |= self._received()
            result = done.pop(taken)
            if isinstance(result, BaseException):
                raise result
            yield result

    def _send(self, number: int, item: Any) -> None:
        pipe = self._idle.pop()
        self._busy[pipe] = number
        try:
            pipe.send(item)
        except OSError:
            raise WorkerDiedError from None

    def _received(self) -> dict[int, Any]:
        found = {}
        for pipe in wait(list(self._busy)):
            assert isinstance(pipe, Connection)
            try:
                found[self._busy[pipe]] = pipe.recv()
            except (EOFError, OSError):
                raise WorkerDiedError from None
            del self._busy[pipe]
            self._idle.append(pipe)
        return found

    def _start(self) -> None:
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            # numpy's threads, of which Python warns, are not used by any work here.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                pid = os.fork()
            except OSError:  # no more processes: fewer, or this one, do the work
                ours.close()
                theirs.close()
                return
        if pid == 0:
            try:
                for pipe in [*self._idle, ours]:
                    pipe.close()
                _serve(theirs, self._work)
            finally:
                os._exit(0)
        theirs.close()
        self._pids.append(pid)
        self._idle.append(ours)


def _serve(pipe: "Connection[Any, Any]", work: Callable[[Any], Any]) -> None:
    """Do work until the other end is closed; Ctrl-C is for the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        try:
            result = work(item)
        except Exception as error:  # noqa: BLE001  it is raised again where the result is taken
            result = error
        pipe.send(result)
