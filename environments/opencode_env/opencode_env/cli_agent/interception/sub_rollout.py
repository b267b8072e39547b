"""The sub side of one rollout: its session, its queue, its counts, and what it leaves on the traces.

It exists from the moment the main trace is minted to the end of the agent's run; after `end` neither trace changes
through a model call any more. Whatever ends one sub call (budget, turn limit, timeout, provider failure) is an answer
to that call's caller; the session goes on, and the main session is not touched. The texts of its refusals hold no
numbers: some agents retry a 400 whose text matches `500`, `429` and the like.
"""

import math
import time
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from aiohttp import web
from verifiers.v1.agent import Agent
from verifiers.v1.clients import ModelContext
from verifiers.v1.errors import HarnessError, ProviderError
from verifiers.v1.session import RolloutLimits, RolloutSession
from verifiers.v1.trace import AgentInfo, Error, InterceptRecord, ModelCall, TimeSpan, Trace
from verifiers.v1.types import AssistantMessage, Request

from opencode_env.cli_agent.interception.call_limits import MAX_TRACE, CallSlots, CallTally, TraceBytes
from opencode_env.cli_agent.interception.conversations import history_forks
from opencode_env.errors import RoleRefused

ROLE_HEADER = "X-RLM-Role"
"""`sub` for a one-shot sub-LLM call or a sub-agent, else `main`, in any case; without it it is the main agent's."""

DEPTH_HEADER = "X-RLM-Depth"
"""How many sub-agents deep the conversation of a `sub` request is; absent in one-shot calls."""


@dataclass(frozen=True)
class Routing:
    """Holds what the routing headers of one request say; nothing else decides whose call it is."""

    sub: bool = False
    explicit: bool = False
    """Whether the request carried the role header."""
    depth: int = 0


def read_routing(request: web.BaseRequest) -> Routing:
    """Return what the routing headers of a request say.

    Raises:
        RoleRefused: an unknown role, two roles, or a depth that is not a small whole number.
    """
    roles = request.headers.getall(ROLE_HEADER, ())
    if not roles:
        return Routing()
    try:
        (value,) = roles
        sub = bool(("main", "sub").index(value.strip().lower()))
    except ValueError:
        shown = ", ".join(roles)[:100]
        raise RoleRefused(f"unknown {ROLE_HEADER} {shown!r}: it must be `main` or `sub`, once") from None
    depths = request.headers.getall(DEPTH_HEADER, ("0",))
    if len(depths) != 1 or not (depths[0].isascii() and depths[0].isdigit() and len(depths[0]) < 4):
        raise RoleRefused(f"{DEPTH_HEADER} must be a whole number, once")
    return Routing(sub, explicit=True, depth=int(depths[0]))


RECORDED_REFUSALS = 100
"""Refused calls that the trace records one by one; more are only counted, so that a loop cannot fill the memory."""


class SubSession(RolloutSession):
    """A rollout session whose limits refuse single calls instead of stopping the trace."""

    def __init__(
        self, ctx: ModelContext, trace: Trace[Any, Any, Any], limits: RolloutLimits, conversation_turns: int
    ) -> None:
        super().__init__(ctx=ctx, trace=trace, limits=limits)
        self.tally = CallTally()
        self.left = TraceBytes(math.inf)
        """What the rollout's calls have left on its traces; that of the main side."""
        self.limit_reached: str | None = None
        """The first of the seat's limits that refused a call."""
        self._conversation_turns = conversation_turns
        self._recorded_refusals = 0

    async def refused(self) -> str | None:
        """Refuse the call when a budget of the seat is spent."""
        limit = MAX_TRACE if self.left.full else self.tally.reached(self.limits)
        if limit is None:
            return None
        self.limit_reached = self.limit_reached or limit
        raise self.refusal(f"the sub-LLM budget of this rollout is spent ({limit}): go on without sub-LLM calls")

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
    """Answers that a conversation has had; one at the end, or before another, is the agent's call for a conclusion."""
    spoken = [isinstance(message, AssistantMessage) for message in request.messages]
    return sum(one and not then for one, then in pairwise([*spoken, True]))


DRAIN_SECONDS = 10.0
"""How long calls in flight may go on after the agent has finished."""

RLM_RECORD = "rlm"
"""Key in the main trace's `info` with what the numbers cannot say: refusals and the first failures."""

_EXAMPLES = 10


@dataclass(frozen=True)
class SubSettings:
    """Sets what bounds the sub calls of one rollout."""

    max_parallel: int = 10
    """Calls at once; more wait in the order in which they came."""
    max_turns: int = 10
    """Answers per sub conversation."""
    timeout: float = 120.0
    """Seconds per call at the model endpoint; waiting for a place does not count."""
    max_depth: int = 1
    """How deep sub-agents may nest; one-shot calls do not count."""


class SubRollout:
    """The sub calls of one rollout."""

    def __init__(self, main: Trace[Any, Any, Any], seat: Agent, settings: SubSettings) -> None:
        self.main = main
        self.settings = settings
        info: AgentInfo[Any] = AgentInfo(config=seat.config, name="sub", trainable=seat.trainable)
        self.trace: Trace[Any, Any, Any] = Trace(task=main.task, agent=info)
        self.session = SubSession(seat.ctx, self.trace, seat.limits, settings.max_turns)
        self.slots = CallSlots(settings.max_parallel, partial(self.session.tally.room, seat.limits))
        self.routed = False
        """Whether a server that tells the roles apart serves this rollout."""
        self.demanded_by = ""
        """What is wrong when the first main call carries no role header; empty where it need not carry one."""
        self.bad_roles: list[str] = []
        self._role_seen: bool | None = None
        self.ended = False
        """Whether its calls have ended and both traces say so."""

    def check_main(self, routing: Routing) -> HarnessError | None:
        """The error of main calls, judged by the rollout's first, before any program of the agent can have run."""
        if self._role_seen is None:
            self._role_seen = routing.explicit or not self.demanded_by
        if self._role_seen:
            return None
        return HarnessError(f"{self.demanded_by}: the first model call carries no {ROLE_HEADER} header")

    def note_bad_role(self, message: str) -> bool:
        """Keep the first few refusals of unknown roles; returns whether this is one of them."""
        if kept := len(self.bad_roles) < _EXAMPLES:
            self.bad_roles.append(message)
        return kept

    async def end(self) -> None:
        """End the sub calls, drained when the agent came to its own end, else cancelled, and record both sides."""
        if self.ended:
            return
        finished = self.main.stop_condition is not None and not self.main.is_timeout and not self.main.errors
        try:
            await self.slots.drain(DRAIN_SECONDS if finished else 0.0)
        finally:
            self._record()

    def _record(self) -> None:
        if self.ended:
            return
        self.ended = True
        self.session.release()
        trace, calls = self.trace, self.trace.calls
        trace.stop(self.session.limit_reached or "agent_completed")
        trace.ok = True
        trace.timing.agent.start = min((call.time.start for call in calls), default=time.time())
        trace.timing.agent.end = max((call.time.end for call in calls), default=trace.timing.agent.start)
        trace.split_agent_time()
        self.main.record_metrics(self._metrics())
        self.main.info[RLM_RECORD] = {
            "sub_trace": trace.id if calls else None,
            "failures": [call.error.message[:300] for call in calls if call.error is not None][:_EXAMPLES],
            "refused_roles": self.bad_roles,
        }

    def _metrics(self) -> dict[str, float]:
        usages = [call.usage for call in self.main.calls if call.usage is not None]
        tally = self.session.tally
        return {
            "main_turns": float(self.main.num_turns),
            "main_prompt_tokens": float(sum(usage.input_tokens for usage in usages)),
            "main_completion_tokens": float(sum(usage.completion_tokens for usage in usages)),
            "sub_llm_turns": float(tally.turns),
            "sub_llm_prompt_tokens": float(tally.prompt_tokens),
            "sub_llm_completion_tokens": float(tally.completion_tokens),
            "sub_llm_calls": float(tally.calls),
            "sub_llm_errors": float(tally.errors),
            "sub_llm_max_parallel": float(self.slots.peak),
            "sub_llm_seconds": tally.seconds,
            "sub_llm_history_forks": history_forks(self.trace),
        }
