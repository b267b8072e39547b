"""What a failed call says, on the trace, in the log and to the agent."""

import re

from renderers.client import MalformedGenerateResponseError
from verifiers.v1.errors import ProviderError, RolloutError

from opencode_env.cli_agent.interception.call import Call

MOST_CHARACTERS = 8000
_LEFT_OUT = " [… left out …] "
_MAY_PASS = re.compile(r"429|50[0234]|524|server error")


def as_failed_call(call: Call, error: Exception) -> Exception:
    """What a training client says of a request that its renderer has no form for, such as an image, or of an answer
    without its evidence."""
    if call.endpoint is not None and call.endpoint.trains:
        if isinstance(error, NotImplementedError):
            return ProviderError(f"the training client cannot ask this: {error}", status_code=400)
        if isinstance(error, MalformedGenerateResponseError):
            return ProviderError(f"the engine's answer cannot be trained on: {error}")
    return error


def mask(call: Call, error: Exception) -> Exception:
    """Take the endpoint's keys out: some repeat the key that they were called with."""
    if call.endpoint is not None and call.endpoint.masking is not None:
        call.endpoint.masking.error(error)
    return error


def shorten(call: Call, error: Exception) -> Exception:
    """Leave the head and the tail, in one of which providers name the cause: some repeat the whole request."""
    error.args = tuple(_shortened(part) if isinstance(part, str) else part for part in error.args)
    return error


def _shortened(text: str) -> str:
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else text[:half] + _LEFT_OUT + text[-half:]


def say_that_it_may_pass(call: Call, error: Exception) -> Exception:
    """Let a failure that may pass say so in words that an agent takes for a reason to try again: a stream that is kept
    alive has no status left for it."""
    status = getattr(error, "status_code", 502)
    may_pass = isinstance(error, RolloutError) and (status in (408, 409, 429) or status >= 500)
    if may_pass and not _MAY_PASS.search(str(error)):
        error.args = (f"server error: {error}",)
    return error
