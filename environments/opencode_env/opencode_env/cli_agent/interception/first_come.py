"""A queue for what there is a limited amount of: it is given out in the order of arrival.

Invariant: what was given to somebody who is cancelled in the same moment goes to the next.
"""

import asyncio
from collections import deque


class FirstCome:
    """Gives out what a subclass has."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, asyncio.Future[bool]]] = deque()

    def _take(self, amount: float) -> bool:
        """Take so much, if there is so much now; returns whether there was."""
        raise NotImplementedError

    def _put_back(self, amount: float) -> None:
        raise NotImplementedError

    async def _enter(self, amount: float = 1) -> bool:
        """Wait for so much and take it; False, without it, for whoever was sent away."""
        if not self._waiting and self._take(amount):
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._leave(amount)  # it was given in the same moment
            elif (amount, turn) in self._waiting:  # else it was passed over because it was cancelled, or sent away
                self._waiting.remove((amount, turn))
                self._serve()
            raise

    def _leave(self, amount: float = 1) -> None:
        self._put_back(amount)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            amount, turn = self._waiting[0]
            if not turn.done() and not self._take(amount):
                return
            self._waiting.popleft()
            if not turn.done():
                turn.set_result(True)
