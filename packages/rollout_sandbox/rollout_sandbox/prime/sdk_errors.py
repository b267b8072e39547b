"""What Prime says went wrong, as errors that retry rules can tell apart by their type, and what is tried again.

The SDK raises for each its own, or one general error whose cause is the HTTP answer; verifiers wraps either in a
`SandboxError`. Which of them an agent can bring about at will, `agent_can_cause` says.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from json import JSONDecodeError
from typing import TypeVar

import httpx
from prime_sandboxes import (
    APIError,
    PaymentRequiredError,
    SandboxImagePullError,
    SandboxNotRunningError,
    SandboxOOMError,
    UnauthorizedError,
)
from pydantic import ValidationError
from verifiers.v1.errors import SandboxError

from rollout_sandbox.errors import (
    SandboxAccessError,
    SandboxDiskError,
    SandboxEndedError,
    SandboxGatewayError,
    SandboxImageError,
    SandboxMemoryError,
    SandboxNotReadyError,
    SandboxQuotaError,
)

OVER = ("TERMINATED", "ERROR", "TIMEOUT")
"""What the platform calls a sandbox that is over."""
_REFUSED, _PAYMENT, _TIMEOUT, TOO_MANY, _SERVER = 400, 402, 408, 429, 500
NO_ACCESS = (401, 403)
_SAID = re.compile(r"\bHTTP (\d{3})\b")
SDK_ERRORS = (APIError, RuntimeError, OSError, JSONDecodeError, ValidationError)
"""What the SDK raises: its errors of states and timeouts are `RuntimeError`s; those of an answer that is not the
platform's, such as a proxy's page, are of whoever reads it."""
_CONNECT = re.compile(r"RPC failed \((unavailable|deadline_exceeded|internal|aborted|unknown|not_found)\)")
_DENIED = re.compile(r"RPC failed \((unauthenticated|permission_denied)\)")
_FULL, _FAILED = re.compile(r"\bHTTP 507\b", re.IGNORECASE), re.compile(r"\bHTTP 5\d\d\b", re.IGNORECASE)
_MOST_SAID = 1 << 15
_PAUSES_S = (0.5, 2.0)
_KEY = "the key, or its team, is not let in: set PRIME_API_KEY or run `prime login`, and PRIME_TEAM_ID for a team's"

ResultT = TypeVar("ResultT")


def chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


def http_status(error: BaseException) -> int | None:
    """The HTTP status that is behind an error of the SDK's; None when no answer is."""
    for one in chain(error):
        if isinstance(one, httpx.HTTPStatusError):
            return one.response.status_code
        if isinstance(one, APIError) and (found := _SAID.search(_said(one))):  # other words may be the sandbox's own
            return int(found[1])
    return None


def _said(error: APIError) -> str:
    """Its message; of a long one, which may hold what a program wrote, the beginning and the end."""
    text = str(error)
    return text if len(text) <= 2 * _MOST_SAID else f"{text[:_MOST_SAID]}\n{text[-_MOST_SAID:]}"


def kind_of(error: BaseException, *, starting: bool = False) -> type[SandboxError]:
    """Return which of the errors above one of the SDK's is, wrapped or not; `SandboxError` itself when none. While a
    sandbox is `starting`, no agent can have ended it."""
    for one in chain(error):
        said = _said(one) if isinstance(one, APIError) else ""
        if isinstance(one, SandboxError) and type(one) is not SandboxError:
            return type(one)
        if isinstance(one, PaymentRequiredError):
            return SandboxQuotaError
        failed = _FAILED.search(said)
        if _FULL.search(said) or (failed and "no space left on device" in said[failed.end() :].lower()):
            return SandboxDiskError
        if isinstance(one, UnauthorizedError) or _DENIED.search(said):
            return SandboxAccessError
        if isinstance(one, SandboxImagePullError):
            return SandboxImageError
        if isinstance(one, SandboxOOMError):
            return SandboxNotReadyError if starting else SandboxMemoryError
        if isinstance(one, SandboxNotRunningError):
            return SandboxEndedError if not starting and one.status in OVER else SandboxNotReadyError
        if isinstance(one, httpx.TransportError | TimeoutError | JSONDecodeError) or _CONNECT.search(said):
            return SandboxGatewayError
    status = http_status(error)
    if status is not None and (status in (_TIMEOUT, TOO_MANY) or status >= _SERVER):
        return SandboxGatewayError
    if status in NO_ACCESS:
        return SandboxAccessError
    return SandboxQuotaError if status == _PAYMENT else SandboxError


@contextlib.asynccontextmanager
async def classified(*, starting: bool = False) -> AsyncIterator[None]:
    """Have a `SandboxError` of verifiers' leave as what it is."""
    try:
        yield
    except SandboxError as error:
        kind = kind_of(error, starting=starting)
        if isinstance(error, kind) and kind is not SandboxError:
            raise
        if kind is SandboxAccessError:
            raise no_access(error) from error
        if kind is SandboxDiskError:
            raise kind(f"the sandbox's disk is full (--env.agent.runtime.disk): {error}") from error
        raise kind(str(error)) from error


def no_access(error: Exception) -> SandboxAccessError:
    """An error of the SDK as what it is, with what to change."""
    return SandboxAccessError(f"{error}; {_KEY}")


def reason_of(error: Exception) -> str:
    """An error in words; one that is not the SDK's own by its type, too."""
    return str(error) if isinstance(error, APIError) else f"{type(error).__name__}: {error}"


def surely_refused(status: int) -> bool:
    """Whether a request for a sandbox that was answered with this HTTP status made none: the platform said no."""
    return _REFUSED <= status < _SERVER and status != _TIMEOUT


async def repeated(request: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """The answer to a request that does no harm when it is repeated, at the latest to its third try; an error of the
    SDK, or a `SandboxError` that wraps one, if it failed otherwise than for want of a sound answer, or to the end."""
    for pause in _PAUSES_S:
        try:
            return await request()
        except (*SDK_ERRORS, SandboxError) as error:
            if kind_of(error) is not SandboxGatewayError:
                raise
        await asyncio.sleep(pause)
    return await request()
