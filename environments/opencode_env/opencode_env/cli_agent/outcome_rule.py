"""Is it the endpoint's doing that a run of an agent broke?

What the policy did (any answer, however bad; giving up; a full context window) is data. Before a program of the agent's
can have run, a model call that failed and that the agent did not recover from is raised as the error of the boundary
that broke; the agent's exit code tells nothing: many exit 0 after either.

A policy that could turn a bad rollout into an error would be sampled anew for free. So once a program of the agent's
can have run, a failure is the infrastructure's only on evidence that nothing in the sandbox can make: what our server
saw the endpoint do to calls of the agent's own program, which that program has sent again as often as it does by
itself. Whatever else ends a run then (a log, an exit code, a killed process, an endless loop, a request that the
endpoint refuses for what is in it) is the policy's doing and is scored. Before that it is the infrastructure's, as is
what a runtime's own API says of a lost sandbox and what the probe of a tunnel says.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from verifiers.v1.errors import HarnessError, InterceptionError, ProviderError, RolloutError
from verifiers.v1.trace import Error, ModelCall

from opencode_env.cli_agent.interception.own_calls import RECORDED_PROGRAM_CALLS, own_calls, program_calls
from opencode_env.cli_agent.interception.window import says_full
from opencode_env.cli_agent.outcomes import endpoint_errors
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.traces import AnyTrace


def require_model_calls(calls: Sequence[ModelCall], describe: str) -> None:
    """Refuse a run that never asked the model, or whose last call failed for another reason than a full window.

    The calls are in order of their end; `describe` says how the run ended, for the message.

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
    """Whether a failed call says that the conversation outgrew the model's window: a 400, 413 or 422 that names it, or
    words with which an engine says nothing else, whatever the status."""
    return says_full(error.status_code, error.message)


def is_refusal(error: Error) -> bool:
    """Whether the endpoint refused a request for what is in it, and will refuse it again."""
    status = error.status_code or 0
    refused = error.type in endpoint_errors() and 400 <= status < 500 and status not in _FINAL | _MAY_PASS
    return refused or is_context_overflow(error)


def as_exception(error: Error) -> RolloutError:
    """The recorded failure of a model call as the exception of its boundary."""
    if error.type == "InterceptionError":
        return InterceptionError(error.message)
    return ProviderError(error.message, status_code=error.status_code or 502)


_FINAL = frozenset({401, 402, 403})
"""Statuses of an account, at which no program tries again."""
_MAY_PASS = frozenset({408, 429})
"""Those of 4xx that do not depend on what was asked; it is 5xx and a broken answer besides."""
_LONGEST_REST_S = 60.0
"""Longer than any agent rests between two sends of a call."""
_FLOOD = 20
"""So many requests of the agent's programs shortly before a failure can have caused it."""
_CROWD = 5
"""So many of them at the endpoint beside one call can have made that fail."""


@dataclass(frozen=True)
class Patience:
    """How long an agent's program bears a failing endpoint; a harness configuration that knows has a `patience()`."""

    sends: int = 2
    """How often it sends one call that may pass, before it gives up."""
    seconds: float = math.inf
    """How long it waits for one answer."""


def patience_of(harness: Any) -> Patience:
    """The patience of a harness, by its configuration."""
    own = getattr(harness, "patience", None)
    found: Patience = Patience() if own is None else own()
    return found


@dataclass(frozen=True)
class Evidence:
    """What our server saw of one run of an agent."""

    own: Sequence[ModelCall]
    """Calls of the agent's own program, in order of their end."""
    programs: Sequence[ModelCall] = ()
    """Calls of the programs that the agent started."""
    patience: Patience = Patience()
    under_way: float = 0.0
    """Seconds for which the endpoint has been silent on some call of its own."""
    time_over: float | None = None
    """When the run's time limit ended it, if that did."""
    keys: Sequence[str | None] = ()
    """For each of its own calls the key by which the sends of one call are known; empty or None: they are of one."""
    waits: Sequence[float] = ()
    """For each of its own calls the seconds after which the endpoint wanted it to come again; empty or 0: it named
    none."""
    load: Callable[[float, float], int] = lambda start, end: 0
    """How many requests of the programs were at the endpoint between two moments, answered or not."""

    @classmethod
    def of(cls, trace: AnyTrace, first_call: int, harness: Any, time_over: float | None = None) -> "Evidence":
        """What there is of the run whose first model call is number `first_call`."""
        own, rollout = own_calls(trace, first_call), rollout_of(trace)
        others, waits = program_calls(trace, rollout.first_call), rollout.program.longest_under_way
        gateway = rollout.gateway
        keys, named = ((), ()) if gateway is None else (gateway.step_keys(own), gateway.waits_of(own))
        return cls(own, others, patience_of(harness), waits, time_over, keys, named, rollout.program_load)

    def rest(self, failed: int = 1) -> float:
        """The longest seconds that the program may have rested behind one of its last calls."""
        return max(_LONGEST_REST_S, *self.waits[-failed:], 0.0)


def endpoint_failure(evidence: Evidence) -> RolloutError | None:
    """What the endpoint did that ended the run; None when it did not."""
    patience = evidence.patience
    if evidence.under_way >= patience.seconds:
        return ProviderError(f"the endpoint has not answered a call for {patience.seconds:g} s", status_code=504)
    failed = list(takewhile(_is_the_endpoints, reversed(evidence.own)))
    if not failed or _flooded(evidence, failed):
        return None
    # Failures of several calls at once, such as of sub-agents, are not sends of one.
    sends = max(Counter(evidence.keys[-len(failed) :]).values(), default=len(failed))
    last = failed[0]
    assert last.error is not None
    in_time = evidence.time_over is not None and evidence.time_over - last.time.end <= evidence.rest()
    if last.error.status_code in _FINAL or sends >= patience.sends or in_time:
        return as_exception(last.error)
    return None


def _is_the_endpoints(call: ModelCall) -> bool:
    """Whether a call failed in a way that tells of the endpoint, and not of what it was asked."""
    error = call.error
    if error is None or error.type not in endpoint_errors() or is_context_overflow(error):
        return False
    status = error.status_code
    return status is None or status >= 500 or status in _FINAL | _MAY_PASS


def _flooded(evidence: Evidence, failed: Sequence[ModelCall]) -> bool:
    """Whether the agent's programs asked so much that the endpoint may have failed the agent's own calls for that."""
    # What an endpoint limits for so long may have been asked for as long before.
    programs, since = evidence.programs, failed[-1].time.start - evidence.rest(len(failed))
    # Of failed ones the trace keeps the first only.
    if len(programs) >= RECORDED_PROGRAM_CALLS or sum(call.time.end >= since for call in programs) >= _FLOOD:
        return True
    beside = (evidence.load(call.time.start, call.time.end) for call in failed)
    return evidence.load(since, failed[0].time.end) >= _FLOOD or max(beside) >= _CROWD
