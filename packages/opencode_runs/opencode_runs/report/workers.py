"""Several processes that do parts of one work; their answers come in the order of the parts.

They are forked from this one, so that they start at once, share its memory and hash texts as it does. Where there is
one processor, or no fork, the work is done here.
"""

import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Thread
from typing import Any, Self

from opencode_runs.command import CommandError

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
        self._pool: ProcessPoolExecutor | None = None
        if count < 2:
            return
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _begin, (work,))
        with warnings.catch_warnings():
            # numpy's threads, of which Python warns, are not used by any work here.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                pool.submit(int).result()  # The first item starts all processes.
                self._pool = pool
            except OSError:  # no more processes: this one does the work
                for child in set(multiprocessing.active_children()) - others:
                    child.terminate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def results(self, count: int, item: Callable[[int], Any], after: Callable[[int], int]) -> Iterator[Any]:
        """The results of `count` items, in order.

        Args:
            item: makes the item of a number; it is asked for in order.
            after: how many results must have been taken before the item of a number can be made.

        Raises:
            WorkerDiedError: a process ended.
            Exception: what the work raised.
        """
        if self._pool is None:
            yield from (self._work(item(number)) for number in range(count))
            return
        sent, waiting = 0, deque[Future[Any]]()
        try:
            for taken in range(count):
                while sent < count and after(sent) <= taken:
                    waiting.append(self._pool.submit(_do, item(sent)))
                    sent += 1
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise WorkerDiedError from None


def _begin(work: Callable[[Any], Any]) -> None:
    """In a new process. Ctrl-C is for the one that started it, with which it ends."""
    global _do_here  # noqa: PLW0603 - a process does one work
    _do_here = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_do_here: Callable[[Any], Any]


def _do(item: Any) -> Any:
    return _do_here(item)
