"""One rollout's way to the model: what each of its requests passes before verifiers' server serves it.

Invariant: a request that is refused here was never a model call. It is counted on the trace, it costs the rollout
nothing but time, and it makes no error of it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from aiohttp import web
from pydantic_core import to_json
from verifiers.v1.dialects import Dialect
from verifiers.v1.errors import RolloutError
from verifiers.v1.graph import MessageNode
from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import ModelCall, Trace

from opencode_env.cli_agent.interception.beginnings import Beginnings
from opencode_env.cli_agent.interception.calls_under_way import ProgramLoad
from opencode_env.cli_agent.interception.config import GatewayConfig
from opencode_env.cli_agent.interception.echo_rules import echo_rules
from opencode_env.cli_agent.interception.error_answer import error_answer
from opencode_env.cli_agent.interception.ghosts import Said
from opencode_env.cli_agent.interception.main_calls import MainCalls
from opencode_env.cli_agent.interception.own_calls import AgentProgram, is_by_program
from opencode_env.cli_agent.interception.pace import Memory, Pace
from opencode_env.cli_agent.interception.request_body import (
    LISTS,
    Body,
    RequestRefused,
    parse_body,
    read_body,
    require_conversation,
)
from opencode_env.cli_agent.interception.request_filter import filter_body
from opencode_env.cli_agent.interception.request_rules import CHAT, ModelRequests, model_requests

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

RECORD = "gateway"
"""Key in the main trace's `info` with what was refused and left out, by reason; absent when nothing was."""

LAST_REFUSED = "last_refused"
"""Key in that record with why the newest main request was refused; absent when it was not."""

REPEATED, GHOSTS = "repeated", "ghosts"
"""Keys in that record with counts: calls that were sent again and not sampled again, and ghosts that were dropped."""

_key: ContextVar[str | None] = ContextVar("opencode_env_step_key", default=None)
_REASONS = 20
_GHOSTS = 1000
_BODIES_HELD = 4
"""Largest bodies that one rollout may have in memory at once."""
_ASIDE = 4


def refused_last(trace: Trace[Any, Any, Any]) -> bool:
    """Whether the newest main request of a rollout was refused here."""
    return LAST_REFUSED in trace.info.get(RECORD, {})


class Gateway:
    """Holds one rollout's bounds, and what they have been told."""

    def __init__(self, config: GatewayConfig, session: RolloutSession, program: AgentProgram) -> None:
        self.config = config
        self.calls = MainCalls(session.limits, config.max_parallel_calls)
        self.rules: ModelRequests = model_requests(session.trace.agent.config.harness)
        self.echoes = echo_rules(session.trace.agent.config.harness)
        """How the rollout's agent sends its history back, if it says so."""
        self._session = session
        self._program = program
        self.pace = Pace(config.max_share)
        self._memory = Memory(None if config.max_body is None else _BODIES_HELD * config.max_body)
        self.open = 0
        """Requests that are taken up now, waiting ones included."""
        self.aside = asyncio.Semaphore(_ASIDE)
        """Places for requests that are no model calls."""
        self.load = ProgramLoad()
        self.keys: dict[int, str] = {}
        """Of failed calls that bore one, by position in `trace.calls`."""
        self._ghosts: set[Said] = set()
        self.beginnings = Beginnings(frozenset() if self.echoes is None else self.echoes.side_agents)

    def conversation(self, request: web.BaseRequest) -> str | None:
        """Which conversation a request says it belongs to; what an agent's program says counts for nothing."""
        if self.echoes is None or is_by_program():
            return None
        return request.headers.get(self.echoes.conversation_header)

    @asynccontextmanager
    async def open_request(self) -> AsyncIterator[None]:
        """Take up one request, when it is the rollout's turn to be worked for.

        Raises:
            RequestRefused: the rollout has too many open already.
        """
        limit = self.config.max_waiting_calls
        if limit is not None and self.open >= limit:
            raise RequestRefused(f"more than {limit} requests of this rollout are open", 429)
        self.open += 1
        try:
            await self.pace.turn()
            yield
        finally:
            self.open -= 1

    @asynccontextmanager
    async def turn(self, request: web.Request, body: Body) -> AsyncIterator[Mapping[str, str]]:
        """Let a main call through (see `MainCalls.let_through`)."""
        token = _key.set(request.headers.get(IDEMPOTENCY_KEY_HEADER))
        try:
            async with self.calls.let_through(request, body) as further:
                with self.load.carrying() if is_by_program() else nullcontext():
                    yield further
        finally:
            _key.reset(token)

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Let a request through that is no model call; a program that bears marks makes none."""
        async with self.aside:
            with self.load.carrying() if self._program.is_known else nullcontext():
                yield

    @asynccontextmanager
    async def body(
        self, request: web.Request, dialect: Dialect[Any], session: RolloutSession | None = None
    ) -> AsyncIterator[Body]:
        """The body of a model request as it goes on, within the bounds and without what does not go upstream.

        The session is the one that will serve it; None = it is no model call. Its memory is the rollout's until the
        end of the block: the engine keeps what it parsed as long.

        Raises:
            RequestRefused: it exceeds a bound, is none, or holds what may not go upstream.
            ConnectionError: the caller left.
        """
        if self.config.filter_requests:
            self._check_format(dialect)
        largest = self.config.max_body or 0
        # A packed body may unpack to anything.
        size = None if "Content-Encoding" in request.headers else request.content_length
        async with self._memory.hold(min(largest, size or largest)):
            if session is not None:
                self._note_repeated(request, session)
            yield await self._read(request, dialect, session)

    async def _read(self, request: web.Request, dialect: Dialect[Any], session: RolloutSession | None) -> Body:
        entries = 0
        try:
            raw = await read_body(request, self.config)
            raw, said = await parse_body(raw, self.config)
            require_conversation(said, dialect.upstream_path)
            entries = sum(len(said[key]) for key in LISTS if isinstance(said.get(key), list))
            changed = False
            if self.config.filter_requests and (dropped := filter_body(said, dialect, self.rules)):
                self._note("dropped", dropped)
                changed = True
            if session is self._session and dialect.upstream_path == CHAT and self._hold_beginning(request, said):
                changed = True
            return Body.of(to_json(said) if changed else raw, said)
        finally:
            self.pace.charge(request.content.total_bytes, entries)

    async def read_json(self, request: web.Request) -> bytes:
        """The body of a request that is no model call, within the same bounds.

        Raises:
            RequestRefused: it exceeds a bound, or is no JSON object.
            ConnectionError: the caller left.
        """
        try:
            return (await parse_body(await read_body(request, self.config), self.config))[0]
        finally:
            self.pace.charge(request.content.total_bytes, 0)

    def _check_format(self, dialect: Dialect[Any]) -> None:
        if not self.rules.formats:  # the first call comes before any program of the agent can have run
            self.rules = ModelRequests(
                frozenset({dialect.upstream_path}), self.rules.extra, self.rules.message_keys, self.rules.headers
            )
        if dialect.upstream_path not in self.rules.formats:
            raise RequestRefused(f"{dialect.routes[0]} is not served here", 404)

    def refuse(self, error: RequestRefused, dialect: Dialect[Any]) -> web.Response:
        """The answer to a refused request, which is counted and paid for."""
        self.pace.charge_refusal()
        self._note("refused", [str(error)])
        return error_answer(dialect, str(error), error.status)

    def count(self, call: ModelCall, nodes: list[MessageNode]) -> None:
        """Count a recorded main call against the seat's budgets; a failed one is paid for like a refused one."""
        self.calls.tally.add(call, nodes)
        if call.node is None:
            self.pace.charge_refusal()
            if (key := _key.get()) is not None and not is_by_program():
                self.keys[len(self._session.trace.calls) - 1] = key

    def main_request(self, error: RequestRefused | None) -> None:
        """Note on the trace what came of the newest main request, as long as it was refused; what a program asked says
        nothing of how the agent's own run ends."""
        if is_by_program():
            return
        info = self._session.trace.info
        if error is not None and not self._session.released:
            info.setdefault(RECORD, {})[LAST_REFUSED] = str(error)[:200]
        elif RECORD in info:
            info[RECORD].pop(LAST_REFUSED, None)

    def take_failure(self) -> RolloutError | None:
        """What the session holds for the cause of its end, which verifiers would prefer to every other, and holds no
        longer."""
        found, self._session.error = self._session.error, None
        return found

    def step_keys(self, calls: Sequence[ModelCall]) -> Sequence[str | None]:
        """For each recorded call the key by which all sends of one call are known; None where it bore none."""
        positions = {id(call): position for position, call in enumerate(self._session.trace.calls)}
        return [self.keys.get(positions.get(id(call), -1)) for call in calls]

    def _note_repeated(self, request: web.Request, session: RolloutSession) -> None:
        key = request.headers.get(IDEMPOTENCY_KEY_HEADER)
        if key and f"explicit:{key}" in session.idempotent_requests and not self._session.released:
            record = self._session.trace.info.setdefault(RECORD, {})
            record[REPEATED] = record.get(REPEATED, 0) + 1

    def note_ghosts(self, ghosts: list[Said]) -> None:
        """Count what was dropped from a request's history, each once, however often it is sent back."""
        if len(self._ghosts) < _GHOSTS and not self._session.released:
            self._ghosts.update(ghosts)
            self._session.trace.info.setdefault(RECORD, {})[GHOSTS] = len(self._ghosts)

    def note_finish_reason(self, name: str) -> None:
        """Note that an answer ended with a name that nobody knows."""
        self._note("unknown finish reason", [name])

    def _hold_beginning(self, request: web.Request, body: dict[str, Any]) -> bool:
        """Let a request go on as its conversation began; returns whether it would not have."""
        agent = request.headers.get(IDEMPOTENCY_KEY_HEADER, "").partition(":")[2]
        return self.beginnings.hold(body, self.conversation(request), agent)

    def _note(self, kind: str, reasons: list[str]) -> None:
        if self._session.released:
            return
        counts: dict[str, int] = self._session.trace.info.setdefault(RECORD, {}).setdefault(kind, {})
        for reason in reasons:
            name = reason[:200]
            if name not in counts and len(counts) >= _REASONS:
                name = "others"
            if name not in counts:
                logger.warning("%s of a model request: id=%s %s", kind, self._session.trace.id, name)
            counts[name] = counts.get(name, 0) + 1
