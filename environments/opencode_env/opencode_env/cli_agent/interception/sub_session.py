"""The session that serves a rollout's sub calls: own model, client, sampling, limits and trace.

The texts of its refusals hold no numbers: some agents retry a 400 whose text matches `500`, `429` and the like.
Invariant: whatever ends one sub call (budget, turn limit, timeout, provider failure) is an answer to that call's
caller; the session goes on, and the main session is not touched.
"""

import time
from itertools import pairwise
from typing import Any

from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import ProviderError
from verifiers.v1.session import RolloutLimits, RolloutSession
from verifiers.v1.trace import Error, InterceptRecord, ModelCall, TimeSpan, Trace
from verifiers.v1.types import AssistantMessage, Request

from opencode_env.cli_agent.interception.call_tally import CallTally

RECORDED_REFUSALS = 100
"""Refused calls that the trace records one by one; more are only counted, so that a loop cannot fill the memory."""


class SubSession(RolloutSession):
    """A rollout session whose limits refuse single calls instead of stopping the trace."""

    def __init__(
        self, ctx: ModelContext, trace: Trace[Any, Any, Any], limits: RolloutLimits, conversation_turns: int
    ) -> None:
        super().__init__(ctx=ctx, trace=trace, limits=limits)
        self.tally = CallTally()
        self.limit_reached: str | None = None
        """The first of the seat's limits that refused a call."""
        self._conversation_turns = conversation_turns
        self._recorded_refusals = 0

    async def refused(self) -> str | None:
        """Refuse the call when a budget of the seat is spent."""
        limit = self.tally.reached(self.limits)
        if limit is None:
            return None
        self.limit_reached = self.limit_reached or limit
        raise self.refusal(f"the sub-LLM budget of this rollout is spent ({limit}): go on without sub-LLM calls")

    def room(self, active: int) -> bool:
        """Whether the seat's budgets leave room for one more call beside so many."""
        return self.tally.room(self.limits, active)

    async def rewrite_request(
        self, request: Request, *, run_stops: bool = True, dialect: str | None = None
    ) -> tuple[Request, list[InterceptRecord], str | None]:
        """Refuse the call when its conversation has had all its turns; a task's hooks see main calls only."""
        if _answers(request) >= self._conversation_turns:
            raise self.refusal("this sub conversation has had all its turns (sub_llm_max_turns)")
        return request, [], None

    def refusal(self, message: str) -> ProviderError:
        """Count and record a refused call; returns what to raise or to answer."""
        error = ProviderError(message, status_code=400)
        if self.released:
            return error
        self.tally.errors += 1
        if self._recorded_refusals < RECORDED_REFUSALS:
            self._recorded_refusals += 1
            now = time.time()
            record = Error(type=type(error).__name__, message=message, status_code=400)
            self.trace.calls.append(ModelCall(time=TimeSpan(start=now, end=now), error=record))
        return error


def _answers(request: Request) -> int:
    """The answers that a conversation has had; one at the end, or before another, is the agent's own call for a
    conclusion."""
    spoken = [isinstance(message, AssistantMessage) for message in request.messages]
    return sum(one and not then for one, then in pairwise([*spoken, True]))
