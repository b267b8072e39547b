"""What stands behind a sandbox of the server: by default a confined local sandbox; a benchmark has lighter ones."""

from collections.abc import AsyncIterator
from typing import Any, Protocol


class BoxProcess(Protocol):
    """A process in a box."""

    stdout: AsyncIterator[bytes]
    stderr: AsyncIterator[bytes]

    async def wait(self) -> int: ...

    async def write(self, data: bytes) -> None: ...


class Box(Protocol):
    """Runs the commands of one sandbox and keeps its files."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def exec(self, argv: list[str], env: dict[str, str]) -> BoxProcess: ...

    async def run(self, argv: list[str], env: dict[str, str]) -> Any: ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def read_answer(self, path: str, limit: int) -> bytes | str: ...
