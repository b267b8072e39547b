"""A model client whose errors have a bounded text: some endpoints repeat the whole request in theirs.

The text of every failed call stays on the trace and goes to the log.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from verifiers.v1 import SamplingConfig
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.graph import PendingTurn
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.wrapped_client import WrappedClient

MOST_CHARACTERS = 8000
_LEFT_OUT = " [… left out …] "


def _shortened(text: str) -> str:
    """The head and the tail of a long text: providers name the cause in one of them."""
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else text[:half] + _LEFT_OUT + text[-half:]


@contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.args = tuple(_shortened(part) if isinstance(part, str) else part for part in error.args)
        raise


class BoundedErrors(WrappedClient):
    """Another client, whose errors are short."""

    async def get_response(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        sampling: SamplingConfig,
        session_id: str | None = None,
        turn: PendingTurn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One completion."""
        with _bounded():
            return await super().get_response(
                dialect, body, sampling, session_id=session_id, turn=turn, headers=headers
            )

    async def relay(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        session_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RelayReply:
        """One stream."""
        with _bounded():
            return await super().relay(dialect, body, session_id=session_id, headers=headers)
