"""The thread of one world: its plain methods run there, one at a time, and never on the server's loop."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class WorldThread:
    """Runs one world's methods; a method that never returns keeps the thread, and nothing else."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = False

    async def run(self, method: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call the method in the thread, or await it here if it is a coroutine function."""
        if inspect.iscoroutinefunction(method):
            try:
                return await method(*arguments, **named)
            except (SystemExit, KeyboardInterrupt) as ending:  # it would end the loop, and all worlds on it
                raise RuntimeError(f"{type(ending).__name__}: {ending}") from ending
        if not self._started:
            self._started = True
            # A daemon: a method that hangs must not keep the server's process alive.
            threading.Thread(target=self._work, daemon=True, name="world").start()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, method, arguments, named))
        return await future

    def stop(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, method, arguments, named = job
            try:
                outcome: Any = method(*arguments, **named)
                failure: BaseException | None = None
            except BaseException as error:  # noqa: BLE001 - whatever a world raises is its caller's to judge
                outcome, failure = None, error
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, outcome, failure)
            except RuntimeError:  # the loop is closed, so nobody waits
                return
            del job, future, outcome, failure


def _settle(future: asyncio.Future[Any], outcome: Any, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(outcome)
    elif isinstance(failure, StopIteration) or not isinstance(failure, Exception):
        # As it is it would end the loop, or look like the end of whoever waits.
        other = RuntimeError(f"{type(failure).__name__}: {failure}")
        other.__cause__ = failure
        future.set_exception(other)
    else:
        future.set_exception(failure)
