"""A sandbox for as long as a context lasts, whatever happens in it."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeVar

from verifiers.v1.runtimes.base import register

RuntimeT_co = TypeVar("RuntimeT_co", covariant=True)


class Backend(Protocol[RuntimeT_co]):
    """A sandbox that is not started yet."""

    env: dict[str, str]

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def bind(self) -> RuntimeT_co: ...


@contextlib.asynccontextmanager
async def provisioned(
    backend: Backend[RuntimeT_co], env: Mapping[str, str] | None = None
) -> AsyncIterator[RuntimeT_co]:
    """Start a sandbox, give a view of it, and remove it on exit."""
    owned: Any = backend  # verifiers 0.4.0 has another class for it, and asks for nothing but `cleanup`
    register(owned)
    backend.env = dict(env or {})
    try:
        await backend.start()
        yield backend.bind()
    finally:
        await backend.stop()
