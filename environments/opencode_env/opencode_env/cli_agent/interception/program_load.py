"""What the agent's programs ask of the endpoint, answered or not, which can be why it fails the agent's own calls.

Invariant: a request counts from when it goes to the endpoint, whether it is answered, is given up or is no model call.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_KEPT = 1000


class ProgramLoad:
    """The newest requests of one rollout's programs."""

    def __init__(self) -> None:
        self._requests: deque[list[float]] = deque(maxlen=_KEPT)

    @contextmanager
    def carrying(self) -> Iterator[None]:
        """One request is at the endpoint until the end of the block."""
        span = [time.time(), float("inf")]
        self._requests.append(span)
        try:
            yield
        finally:
            span[1] = time.time()

    def between(self, start: float, end: float) -> int:
        """How many requests were at the endpoint at some moment of that time."""
        return sum(begun <= end and ended >= start for begun, ended in self._requests)
