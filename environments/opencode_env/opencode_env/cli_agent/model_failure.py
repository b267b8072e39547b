"""Did the infrastructure fail a run of an agent in which none of the agent's programs can have run?

What the policy did (any answer, however bad; giving up; a full context window) is data. A model call that failed and
that the agent did not recover from is the infrastructure's doing and raised as the error of the boundary that broke. An
agent's exit code tells neither: many exit 0 after either.
"""

from collections.abc import Sequence

from verifiers.v1.errors import HarnessError, InterceptionError, ProviderError, RolloutError
from verifiers.v1.harnesses.utils.compaction import CONTEXT_OVERFLOW_MARKERS
from verifiers.v1.trace import Error, ModelCall


def require_model_calls(calls: Sequence[ModelCall], describe: str) -> None:
    """Refuse a run that never asked the model, or whose last call failed for another reason than a full window.

    Args:
        calls: the model calls of the run, in order of their end.
        describe: how the run ended, for the message.

    Raises:
        HarnessError: there is no call.
        ProviderError: the endpoint failed the last call.
        InterceptionError: the last call failed on the path to the endpoint.
    """
    if not calls:
        raise HarnessError(f"the agent ended without a single model call {describe}")
    error = calls[-1].error
    if error is not None and not is_context_overflow(error):
        raise as_exception(error)


def overflowed(calls: Sequence[ModelCall]) -> bool:
    """Whether the run ended because the conversation no longer fits the model's window."""
    return bool(calls) and calls[-1].error is not None and is_context_overflow(calls[-1].error)


def is_context_overflow(error: Error) -> bool:
    """Whether a failed call says that the conversation outgrew the model's window (a 400 or 413 that names it)."""
    text = error.message.casefold()
    return error.status_code in (400, 413) and any(marker in text for marker in CONTEXT_OVERFLOW_MARKERS)


def as_exception(error: Error) -> RolloutError:
    """The recorded failure of a model call as the exception of its boundary."""
    if error.type == "InterceptionError":
        return InterceptionError(error.message)
    return ProviderError(error.message, status_code=error.status_code or 502)
