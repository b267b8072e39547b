"""How many requests of one rollout a world's server takes in at once.

A request may have 4 MiB and costs several times that while it is read, and an agent's programs have 128 connections:
without a gate one rollout takes gigabytes of a server that it shares, and its neighbours wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]

_AT_ONCE = 8


class RequestGate:
    """Lets a few requests of each rollout through, and the others wait unread.

    Args:
        app: what is behind it.
        rollout_of: the rollout that a request's query names; all that name none are together.
    """

    def __init__(self, app: AsgiApp, rollout_of: Callable[[str], str | None]) -> None:
        self._app = app
        self._rollout_of = rollout_of
        self._gates: WeakValueDictionary[str | None, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rollout = self._rollout_of(scope["query_string"].decode(errors="replace"))
        gate = self._gates.setdefault(rollout, asyncio.Semaphore(_AT_ONCE))
        async with gate:
            await self._app(scope, receive, send)
