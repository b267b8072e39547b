"""Instances elsewhere that could not be removed when their rollout ended."""

import logging
from collections.abc import Awaitable, Callable

from verifiers.v1.errors import ToolsetError

logger = logging.getLogger("verifiers.v1.opencode_env.tool_backends")


class Leftovers:
    """What is removed when the environment stops; no rollout fails for it, as its work is done."""

    def __init__(self) -> None:
        self._removals: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    def add(self, name: str, removal: Callable[[], Awaitable[None]], why: ToolsetError) -> None:
        """Note an instance that could not be removed."""
        self._removals.append((name, removal))
        logger.warning("%s could not be removed, it is tried again at the end: %s", name, why)

    async def remove(self) -> None:
        """Try once more; what stays is told, for somebody to remove it by hand."""
        left = []
        while self._removals:
            name, removal = self._removals.pop()
            try:
                await removal()
            except ToolsetError as error:
                left.append(f"{name} ({error})")
        if left:
            logger.error("%d left behind, to be removed by hand: %s", len(left), "; ".join(left))
