"""The processes of a runtime of one's own, over a service that is not there."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from rollout_sandbox.command_process import CommandProcess, CommandProcesses
from verifiers.v1.errors import SandboxError, TaskError


class Printed:
    """A process that has printed more than is held for whoever reads it."""

    def __init__(self) -> None:
        self.stdout, self.stderr = self._chunks(100), self._chunks(0)

    async def _chunks(self, count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x"

    async def write(self, data: bytes) -> None: ...

    async def wait(self) -> int:
        return 0


async def opened(argv: list[str], env: dict[str, str], user: str | None) -> CommandProcess:
    return Printed()


def test_output_that_nobody_reads_does_not_keep_a_loop_from_ending() -> None:
    async def left() -> int:
        process = await CommandProcesses("box", opened).open(["true"], {}, None)
        return await process.wait()

    assert asyncio.run(left()) == 0


async def test_output_is_read_to_its_end() -> None:
    process = await CommandProcesses("box", opened).open(["true"], {}, None)
    assert b"".join([chunk async for chunk in process.stdout]) == b"x" * 100
    assert [chunk async for chunk in process.stderr] == []


@pytest.mark.parametrize("raised", [ValueError("no such image"), TaskError("no such image"), SandboxError("gone")])
def test_what_a_service_raises_is_an_error_of_the_sandbox_unless_it_is_one_of_verifiers(raised: Exception) -> None:
    kind = SandboxError if isinstance(raised, ValueError) else type(raised)
    with pytest.raises(kind, match=str(raised)), CommandProcesses("box", opened).failing():
        raise raised
