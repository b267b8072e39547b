"""A model client around another one; a subclass changes what it must."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import Client
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.graph import PendingTurn
from verifiers.v1.types import Response


@dataclass
class ReadStream:
    """What a stream gave before it ended, and what ended it if that was a failure."""

    chunks: list[bytes] = field(default_factory=list)
    failure: Exception | None = None

    @classmethod
    async def of(cls, chunks: AsyncIterator[bytes]) -> "ReadStream":
        """Read a stream to its end; what came before a failure counts."""
        read = cls()
        try:
            async for chunk in chunks:
                read.chunks.append(chunk)
        except Exception as error:  # noqa: BLE001 - raised by `replay`, behind what came before it
            read.failure = error
        return read

    async def replay(self) -> AsyncIterator[bytes]:
        """The same stream again, its failure included."""
        for chunk in self.chunks:
            yield chunk
        if self.failure is not None:
            raise self.failure


class WrappedClient(Client):
    """Passes everything on to `inner`, which it owns."""

    def __init__(self, inner: Client) -> None:
        self._inner = inner

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
        return await self._inner.get_response(
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
        return await self._inner.relay(dialect, body, session_id=session_id, headers=headers)

    async def relay_aux(
        self, dialect: Dialect[Any], route: str, body: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """A side request."""
        answer: dict[str, Any] = await self._inner.relay_aux(dialect, route, body, headers=headers)
        return answer

    async def close(self) -> None:
        """Close the other client."""
        await self._inner.close()
