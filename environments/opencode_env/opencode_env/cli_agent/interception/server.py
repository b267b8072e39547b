"""`RoleInterceptionServer`: verifiers' interception server with a second session per rollout for sub-LLM calls.

Private parts of verifiers are used here and in `serving.py` only: `_handler_for`, `_aux_handler_for`, `record_call`,
`_session_for`, `sessions`, `clients`, `stack`. `tests/rlm/test_contract.py` pins them.

Invariant: the bearer decides the rollout, the header only which of that rollout's two sessions serves the request; the
sub session's own bearer never leaves this process.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from verifiers.v1.clients import BaseClientConfig, Client, resolve_client
from verifiers.v1.dialects import Dialect
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.interception.base import Slot
from verifiers.v1.session import RolloutSession

from opencode_env.cli_agent.interception.own_calls import note_call, telling
from opencode_env.cli_agent.interception.roles import Mark, Role, RoleRefused, read_mark, upstream_headers
from opencode_env.cli_agent.interception.sub_rollout import SubRollout, sub_rollout_of
from opencode_env.cli_agent.interception.sub_session import BoundedClient, SubSession
from opencode_env.cli_agent.interception.whole_streams import WholeStreams

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class _Registered:
    """One rollout on this server."""

    rollout: SubRollout
    main: RolloutSession
    secret: str
    sub_bearer: str


class RoleInterceptionServer(InterceptionServer):
    """Serves `sub` calls of a rollout that has a `SubRollout` with its sub session, all others as verifiers does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._rollouts: dict[str, _Registered] = {}

    @property
    def load(self) -> int:
        """Rollouts on this server; a sub session is part of its rollout."""
        return len(self.sessions) - len(self._rollouts)

    def register(self, session: RolloutSession) -> tuple[str, str]:
        """Register a rollout, with its sub session when it has one."""
        model_secret, state_secret = super().register(session)
        rollout = sub_rollout_of(session.trace)
        if rollout is not None:
            bearer = secrets.token_urlsafe(16)
            rollout.routed = True
            rollout.session.network_policy = session.network_policy
            rollout.session.client = BoundedClient(self._sub_client(rollout), rollout.settings.timeout)
            self.sessions[bearer] = rollout.session
            self._rollouts[model_secret] = _Registered(rollout, session, model_secret, bearer)
        return model_secret, state_secret

    def unregister(self, model_secret: str, state_secret: str) -> None:
        """Take both sessions away; a later call finds neither."""
        registered = self._rollouts.pop(model_secret, None)
        super().unregister(model_secret, state_secret)
        if registered is not None:
            self.sessions.pop(registered.sub_bearer, None)

    @asynccontextmanager
    async def acquire(self, session: RolloutSession) -> AsyncIterator[Slot]:
        """A slot for one rollout; leaving it ends the rollout's sub calls first."""
        async with super().acquire(session) as slot, ending_sub_calls(session):
            yield slot

    def _sub_client(self, rollout: SubRollout) -> Client:
        """The client of sub calls: never the one of main calls, whose connections it could use up."""
        config = rollout.session.ctx.client
        return self._kept_client(f"sub:{config.model_dump_json()}", config)

    def _client(self, config: BaseClientConfig) -> Client:
        return self._kept_client(config.model_dump_json(), config)

    def _kept_client(self, key: str, config: BaseClientConfig) -> Client:
        """The server's client of that key, whose streams are whole or fail."""
        if key not in self.clients:
            self.clients[key] = WholeStreams(resolve_client(config))
            self.stack.push_async_callback(self.clients[key].close)
        return self.clients[key]

    def _handler_for(self, dialect: Dialect[Any]) -> Handler:
        serve: Handler = super()._handler_for(dialect)

        async def handler(request: web.Request) -> web.StreamResponse:
            registered = self._rollouts.get(dialect.secret(request.headers))
            if registered is None:
                return await serve(request)
            mark = _mark(registered, request, dialect)
            if isinstance(mark, web.Response):
                return mark
            if mark.role is Role.SUB:
                return await self._serve_sub(registered, mark, request, dialect, serve)
            if (error := registered.rollout.check_main(mark)) is not None:
                registered.main.error = error
                return web.json_response(dialect.error_body(str(error)), status=400)
            return await serve(_cleaned(registered, request, registered.secret))

        return telling(handler, lambda request: self.sessions.get(dialect.secret(request.headers)))

    def _aux_handler_for(self, dialect: Dialect[Any], route: str) -> Handler:
        serve: Handler = super()._aux_handler_for(dialect, route)

        async def handler(request: web.Request) -> web.StreamResponse:
            registered = self._rollouts.get(dialect.secret(request.headers))
            if registered is None:
                return await serve(request)
            mark = _mark(registered, request, dialect)
            if isinstance(mark, web.Response):
                return mark
            bearer = registered.sub_bearer if mark.role is Role.SUB else registered.secret
            return await serve(_cleaned(registered, request, bearer))

        return handler

    async def handle_task_get(self, request: web.Request) -> web.Response:
        """Hand a tool server its rollout's task, answer included, while no program of the agent can run."""
        session = self._session_for(request)
        if session is not None and session.trace.timing.agent.start:
            return web.json_response({"error": "the agent runs: its task is not served any more"}, status=403)
        return await super().handle_task_get(request)

    async def _serve_sub(
        self, registered: _Registered, mark: Mark, request: web.Request, dialect: Dialect[Any], serve: Handler
    ) -> web.StreamResponse:
        """Serve a sub call when it is its turn."""
        rollout = registered.rollout
        if (problem := rollout.too_deep(mark)) is not None:
            error = rollout.session.refusal(problem)
            return web.json_response(dialect.error_body(str(error)), status=400)
        async with rollout.gate.place() as entered:
            if not entered:
                return web.json_response(dialect.error_body("the rollout has ended"), status=409)
            if request.transport is None or request.transport.is_closing():
                return web.Response(status=499)  # nobody waits for it any more
            return await serve(_cleaned(registered, request, registered.sub_bearer))

    def record_call(self, session: RolloutSession, *args: Any, **options: Any) -> None:
        """Record an exchange, and count it when it is a sub call."""
        super().record_call(session, *args, **options)
        if session.released:
            return
        if isinstance(session, SubSession):
            session.tally.add(session.trace.calls[-1], session.trace.nodes)
        else:
            note_call(session.trace)


@asynccontextmanager
async def ending_sub_calls(session: RolloutSession) -> AsyncIterator[None]:
    """End a rollout's sub calls on the way out, while its sub session can still record them."""
    rollout = sub_rollout_of(session.trace)
    try:
        yield
    finally:
        if rollout is not None:
            await rollout.end()


def _mark(registered: _Registered, request: web.Request, dialect: Dialect[Any]) -> Mark | web.Response:
    """The request's mark, or the 400 of one that means nothing, which is recorded."""
    try:
        return read_mark(request)
    except RoleRefused as error:
        registered.rollout.note_bad_role(str(error))
        logger.warning("refused a model call: id=%s %s", registered.main.trace.id, error)
        return web.json_response(dialect.error_body(str(error)), status=400)


def _cleaned(registered: _Registered, request: web.Request, bearer: str) -> web.Request:
    """The same request with the headers that may travel upstream, for the session of `bearer`."""
    return request.clone(headers=upstream_headers(request.headers, registered.secret, bearer))
