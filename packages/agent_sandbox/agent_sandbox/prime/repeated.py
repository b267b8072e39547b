"""Requests that do no harm when they are repeated: tried again while the platform does not answer soundly."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from verifiers.v1.errors import SandboxError

from agent_sandbox.prime.errors import SDK_ERRORS, SandboxGatewayError, kind_of

_PAUSES_S = (0.5, 2.0)
_ERRORS = (*SDK_ERRORS, SandboxError)

ResultT = TypeVar("ResultT")


async def repeated(request: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """The answer to a request, at the latest to its third try; an error of the SDK, or a `SandboxError` that wraps one,
    if it failed otherwise or to the end."""
    for pause in _PAUSES_S:
        try:
            return await request()
        except _ERRORS as error:
            if kind_of(error) is not SandboxGatewayError:
                raise
        await asyncio.sleep(pause)
    return await request()
