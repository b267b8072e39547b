"""One event loop on a thread of its own, for environments that are called with and without a loop of their caller's.

A sandbox belongs to the event loop on which it was started; OpenEnv calls an environment from any thread.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class LoopThread:
    """A running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="tbench2", daemon=True).start()

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> "Future[ResultT]":
        """Run `work` there; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)


@cache
def loop_thread() -> LoopThread:
    """The one of this process."""
    return LoopThread()
