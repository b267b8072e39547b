"""Whose call it is: the agent's own program's, of a program that it started, or of the rollout's sub side.

A harness whose program can keep a secret gives it a code for one run. The program makes a mark of it, `CODE:` and
something that only its own memory holds, and sends that along with every call: the first mark of a code is that run's,
and no other. So a code that somebody reads later is worth nothing. Neither code nor mark goes upstream.

The sub side exists from the moment the main trace is minted to the end of the agent's run; after `end` neither trace
changes through a model call any more. Whatever ends one sub call (budget, turn limit, timeout, provider failure) is an
answer to that call's caller; the session goes on, and the main session is not touched. The texts of its refusals hold
no numbers: some agents retry a 400 whose text matches `500`, `429` and the like.
"""

import asyncio
import hmac
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from opencode_env.cli_agent.interception.conversations import compaction_metrics, history_forks
from opencode_env.cli_agent.traces import AnyTrace, agent_record
from opencode_env.errors import RoleRefused

MARK_HEADER = "X-Agent-Mark"
PROGRAM_CALLS = "program_calls"
"""Key of the agent's record: the positions in `trace.calls` of the calls that the agent's programs made."""

RECORDED_PROGRAM_CALLS = 1000
"""Calls of programs after which a failed one leaves no record, so that a loop cannot fill the memory."""


class AgentProgram:
    """The agent's own program in one rollout: the mark by which its calls are known, and what they wait for. Without a
    code, of an agent that keeps no secret, every call is taken for its own."""

    def __init__(self) -> None:
        self._code = ""
        """Of the run that is on; empty between two runs."""
        self._mark: str | None = None
        """What the first call with that code bore."""
        self._runs = 0
        self._works: bool | None = None
        """Whether the rollout's first call, made before any program of the agent can run, bore a mark."""
        self.called = asyncio.Event()
        """Of the newest run: set by its first call that has the mark, as it arrives, answered or not."""
        self._silent_since: dict[object, float] = {}
        """When each of its calls was sent to the endpoint, or its stream last went on (monotonic seconds)."""
        self._answered: set[object] = set()
        """Those of them of whose answer something came, or which are not streamed, so that nothing can come of it."""
        self.cut_off = False
        """Whether the last of these was cancelled."""

    def new_run(self) -> str:
        """The code of the agent's next run; an older one, and its mark, count no more."""
        self._code, self._mark, self._runs = secrets.token_urlsafe(24), None, self._runs + 1
        self.called = asyncio.Event()
        return self._code

    def revoke(self) -> None:
        """Take no further call for the agent's own until its next run."""
        self._code, self._mark = "", None

    def forget(self) -> None:
        """Know nothing of the runs any more, as the agent has ended."""
        self.revoke()
        self._runs, self._works = 0, None

    @property
    def is_known(self) -> bool:
        """Whether its calls are known by their mark."""
        return bool(self._works)

    @property
    def longest_under_way(self) -> float:
        """Seconds for which the endpoint has been silent on some call of its own; 0 without one."""
        return time.monotonic() - min(self._silent_since.values()) if self._silent_since else 0.0

    @property
    def is_answered(self) -> bool:
        """Whether an answer was under way, as far as can be told: of a call that is at the endpoint, or was until it
        was cancelled."""
        return self.cut_off or bool(self._answered)

    @property
    def is_waiting(self) -> bool:
        """Whether a call of its own is at the endpoint."""
        return bool(self._silent_since)

    @contextmanager
    def at_the_endpoint(self, streamed: bool = True) -> Iterator[Callable[[], None]]:
        """A call of its own is at the endpoint until the end of the block; yields what says that its answer goes on.
        Neither what waits here before, nor an agent that does not read its answer, nor an answer that the policy makes
        long makes the silence longer."""
        call = object()
        self._silent_since[call], self.cut_off = time.monotonic(), False
        if not streamed:
            self._answered.add(call)

        def goes_on() -> None:
            self._silent_since[call] = time.monotonic()
            self._answered.add(call)

        try:
            yield goes_on
        except asyncio.CancelledError:
            self.cut_off = self.cut_off or call in self._answered
            raise
        finally:
            del self._silent_since[call]
            self._answered.discard(call)

    def identify(self, mark: str | None) -> "Caller":
        """Return who makes a call of the rollout that bears this mark, as it arrives."""
        caller = Caller(own=True)
        if self._runs:
            right = self._bears(mark)
            if self._works is None:
                self._works = right
            caller = Caller(right or not self._works, self._runs if right else 0)
        if caller.own:
            self.called.set()
        return caller

    def is_own(self, caller: "Caller") -> bool:
        """Whether a call counts as its own now: one that outlives its run counts as some program's."""
        return caller.own and (not self._runs or caller.run in (0, self._runs))

    def _bears(self, mark: str | None) -> bool:
        """Whether a call with that mark is the run's; takes up the first one."""
        if self._mark is None and self._code and mark is not None and mark.startswith(f"{self._code}:"):
            self._mark = mark
        known = self._mark is not None and mark is not None
        return known and hmac.compare_digest(str(mark).encode(errors="replace"), str(self._mark).encode())


class ProgramLoad:
    """The newest requests of the programs that one rollout's agent started, which can be why an endpoint fails its own
    calls: a request counts whether it is answered, is given up or is not a model call."""

    def __init__(self) -> None:
        self._requests: deque[list[float]] = deque(maxlen=1000)

    @contextmanager
    def carrying(self) -> Iterator[None]:
        """One request is at the endpoint until the end of the block."""
        span = [time.time(), float("inf")]
        self._requests.append(span)
        try:
            yield
        finally:
            span[1] = time.time()

    def between(self, start: float, end: float) -> int:
        """Return how many requests were at the endpoint at some moment of that time."""
        return sum(begun <= end and ended >= start for begun, ended in self._requests)


@dataclass(frozen=True)
class Caller:
    """Tells who makes a call: the agent's own program, in that run of it, or a program of the agent."""

    own: bool
    run: int = 0
    """Of the program whose mark the call bears, from 1; 0 without one."""


def note_program_call(trace: AnyTrace) -> None:
    """Note that a program made the call that was recorded last; of such calls that fail the trace keeps the first."""
    positions: list[int] = agent_record(trace).setdefault(PROGRAM_CALLS, [])
    if len(positions) >= RECORDED_PROGRAM_CALLS and trace.calls[-1].node is None:
        trace.calls.pop()
    else:
        positions.append(len(trace.calls) - 1)


def own_calls(trace: AnyTrace, first: int = 0) -> Sequence[ModelCall]:
    """The calls from position `first` on that the agent's programs did not make."""
    others = set(agent_record(trace).get(PROGRAM_CALLS, ()))
    return [call for position, call in enumerate(trace.calls[first:], first) if position not in others]


def program_calls(trace: AnyTrace, first: int = 0) -> Sequence[ModelCall]:
    """The calls from position `first` on that the agent's programs made; of very many failed ones the first."""
    return [trace.calls[position] for position in agent_record(trace).get(PROGRAM_CALLS, ()) if position >= first]


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

    @property
    def used_up(self) -> str | None:
        """Name the limit that leaves no further call; None: there are more."""
        return MAX_TRACE if self.left.full else self.tally.reached(self.limits)

    async def refused(self) -> str | None:
        """Refuse the call when a budget of the seat is spent."""
        limit = self.used_up
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


SUMMARY_SEAT = "summary"
"""The seat whose model makes the summaries of a rollout, where it says something of its own."""


class SummarySession(RolloutSession):
    """Serves the summaries that another seat's model makes. Its trace goes with the rollout: a summary stands in the
    record of its conversation's trace, and a call that fails among the calls there."""

    def __init__(self, seat: Agent, main: RolloutSession) -> None:
        info: AgentInfo[Any] = AgentInfo(config=seat.config, name=SUMMARY_SEAT, trainable=False)
        super().__init__(ctx=seat.ctx, trace=Trace(task=main.trace.task, agent=info))
        self.network_policy = main.network_policy
        self._main = main

    async def refused(self) -> str | None:
        """Refuse the call of a rollout that was stopped."""
        return self._main.trace.stop_condition


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
            **{f"sub_llm_{name}": value for name, value in compaction_metrics(self.trace).items()},
        }
