"""`RoleInterceptionServer`: verifiers' interception server behind a gateway, with a second session for sub-LLM calls.

Private methods of verifiers are overridden here and in `endpoint.py` only, pinned by `tests/test_contract.py`:
`_handler_for`, `_aux_handler_for`, `record_call`; used are `sessions`, `stack`, `runner`, `tunnel`.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic_core import to_json
from verifiers.v1.clients import BaseClientConfig, Client
from verifiers.v1.dialects import DIALECTS, Dialect
from verifiers.v1.interception import (
    InterceptionServer,
)
from verifiers.v1.interception.base import Slot
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import InterceptRecord, ModelCall
from verifiers.v1.types import Request

from opencode_env.cli_agent.interception import path
from opencode_env.cli_agent.interception.call_limits import CpuBudget
from opencode_env.cli_agent.interception.callers import SUMMARY_SEAT, SummarySession
from opencode_env.cli_agent.interception.conversations import finding_own_nodes
from opencode_env.cli_agent.interception.endpoint import KeptClients, call_of, served
from opencode_env.cli_agent.interception.gateway import (
    CALL,
    Call,
    CallAnswered,
    Gateway,
    GatewayConfig,
    Masking,
    RolloutOf,
    error_answer,
    keys_of,
)
from opencode_env.cli_agent.interception.request_steps import BODY_IDLE_SECONDS
from opencode_env.cli_agent.interception.tunnel import watched
from opencode_env.compat import end_idle_connections, request_with, serve_through, share_state
from opencode_env.errors import RequestRefused

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Steps = Sequence[Callable[[Call], Awaitable[None]]]
Serve = Callable[[Call], Awaitable[web.StreamResponse]]
OnCall = Callable[[ModelCall], None]


class MainSession(RolloutSession):
    """A view of the session that serves a rollout's main calls: whatever is set on one of them is set on both.
    verifiers looks in every request for tool results that a hook put in the place of the tool's own, and hashes the
    whole history twice for it, also where there are none; that it does not would end this class."""

    def __init__(self, session: RolloutSession, ended: Callable[[], str | None]) -> None:
        share_state(self, session)
        self.ended = ended

    async def rewrite_request(
        self, request: Request, **options: Any
    ) -> tuple[Request, list[InterceptRecord], str | None]:
        """Run the task's hooks over a request, where it has any or has put a result in the place of another."""
        if not (self.request_interceptors or self.request_stops or self.pinned_tool_results):
            return request, [], None
        return await super().rewrite_request(request, **options)

    async def refused(self) -> str | None:
        """Stop the rollout that its gateway has ended, or that has reached a limit."""
        if (stop := self.ended()) is not None:
            self.trace.stop(stop)
            return stop
        return await super().refused()


class RoleInterceptionServer(InterceptionServer):
    """verifiers' server behind a gateway per rollout, with a sub session for a rollout that has a `SubRollout`. The
    bearer decides the rollout, the header only which of that rollout's two sessions serves the request.

    Args:
        rollout_of: finds the state of the rollout that a trace is of.
        on_call: is handed each recorded call.
    """

    def __init__(
        self,
        *args: Any,
        rollout_of: RolloutOf,
        gateway: GatewayConfig | None = None,
        on_call: OnCall | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.gateway = gateway or GatewayConfig()
        self._rollout_of = rollout_of
        self._on_call = on_call
        self._gateways: dict[str, Gateway] = {}
        """By the key of the rollout."""
        self._kept = KeptClients()
        self.watched = watched(self, self.gateway.probe)

    @property
    def load(self) -> int:
        """Rollouts on this server; a sub session is part of its rollout."""
        return len(self._gateways)

    async def start(self) -> None:
        """Listen, and look after idle connections and unauthenticated requests."""
        await super().start()
        self.stack.push_async_callback(self._kept.close)
        assert self.runner is not None
        assert self.runner.server is not None
        self._hold_back_unauthenticated(self.runner.app, self.runner.server)
        end_idle_connections(self.runner.server, BODY_IDLE_SECONDS)

    def _hold_back_unauthenticated(self, app: web.Application, server: web.Server) -> None:
        """Let all requests that belong to no rollout, or to nothing that is served, share one CPU budget: whoever sends
        them waits for the others of their kind, and for nobody else's."""
        paths = frozenset(one.canonical for one in app.router.resources())
        budget = CpuBudget()

        def held_back(serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> Any:
            async def handler(request: web.BaseRequest) -> web.StreamResponse:
                if not (self._is_health_check(request) or (request.path in paths and self._knows_sender(request))):
                    await budget.wait()
                    budget.charge_refusal()
                return await serve(request)

            return handler

        serve_through(server, held_back)
        logging.getLogger("aiohttp.server").addFilter(_is_our_fault)

    def _is_health_check(self, request: web.BaseRequest) -> bool:
        return self.watched is not None and self.watched.asked_by(request)

    def _knows_sender(self, request: web.BaseRequest) -> bool:
        def is_known(secret: str) -> bool:
            return secret in self.sessions or secret in self.state_sessions or secret in self.state_service_secrets

        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return is_known(bearer) or any(is_known(dialect.secret(request.headers)) for dialect in DIALECTS)

    def register(self, session: RolloutSession) -> tuple[str, str]:
        """Register a rollout, with its sub session when it has one; that session's bearer never leaves this process."""
        model_secret, state_secret = super().register(session)
        rollout, sub_bearer = self._rollout_of(session.trace), secrets.token_urlsafe(16)
        if (side := rollout.live_sub) is not None:
            side.routed, side.session.network_policy = True, session.network_policy
            side.session.client = self._kept.lend("sub", side.session.ctx.client)
            self.sessions[sub_bearer] = side.session
        summariser, summary_bearer = None, secrets.token_urlsafe(16)
        if rollout.summary_seat is not None:
            self.sessions[summary_bearer] = summariser = SummarySession(rollout.summary_seat, session)
            summariser.client = self._kept.lend(SUMMARY_SEAT, summariser.ctx.client)
        others = (side, sub_bearer, summariser, summary_bearer)
        gateway = Gateway(self.gateway, session, rollout.program, model_secret, *others)
        self._gateways[model_secret] = gateway
        self.sessions[model_secret] = MainSession(session, lambda: gateway.ended)
        if side is not None:
            side.session.left = gateway.left
        try:
            rollout.registered(gateway)
        except BaseException:
            self.unregister(model_secret, state_secret)
            raise
        rollout.tunnel = None if self.watched is None else self.watched.present
        return model_secret, state_secret

    def unregister(self, model_secret: str, state_secret: str) -> None:
        """Take both sessions away; a later call finds neither."""
        gateway = self._gateways.pop(model_secret, None)
        super().unregister(model_secret, state_secret)
        if gateway is not None:
            self._rollout_of(gateway.main.trace).tunnel = None
            self._kept.give_back("main", gateway.main.ctx.client)
            if gateway.side is not None:
                self._kept.give_back("sub", gateway.side.session.ctx.client)
                self.sessions.pop(gateway.sub_bearer, None)
            if gateway.summariser is not None:
                self._kept.give_back(SUMMARY_SEAT, gateway.summariser.ctx.client)
                self.sessions.pop(gateway.summary_bearer, None)
                gateway.summariser.release()

    @asynccontextmanager
    async def acquire(self, session: RolloutSession) -> AsyncIterator[Slot]:
        """A slot for one rollout, once it can be reached; leaving it ends the rollout's sub calls first."""
        if self.watched is not None:
            await self.watched.wait()
        async with super().acquire(session) as slot, self._rollout_of(session.trace).ending_sub_calls():
            yield slot

    def _client(self, config: BaseClientConfig) -> Client:
        return self._kept.lend("main", config)

    def _handler_for(self, dialect: Dialect[Any]) -> Handler:
        serve: Handler = super()._handler_for(dialect)

        async def pass_on(call: Call) -> web.StreamResponse:
            response = await serve(_passed_on(call, call.server_body))
            for step in call.gateway.steps(path.RESPONSE):
                response = step(call, response)
            return response

        return self._handler(dialect, path.REQUEST, pass_on)

    def _aux_handler_for(self, dialect: Dialect[Any], route: str) -> Handler:
        serve: Handler = super()._aux_handler_for(dialect, route)
        return self._handler(dialect, path.BESIDE, lambda call: serve(_passed_on(call, to_json(call.body))))

    def _handler(self, dialect: Dialect[Any], steps: Steps, serve: Serve) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            gateway = self._gateways.get(dialect.secret(request.headers))
            if gateway is None:
                return error_answer(dialect, "unauthorized", 401)
            if self.watched is not None:
                self.watched.note_request()
            call = Call(request, dialect, gateway)
            try:
                return await self._serve(call, steps, serve)
            except RequestRefused as error:
                gateway.refuse(error)
                if call.session is gateway.main and call.caller.own:
                    gateway.main_request(error)
                return error_answer(dialect, str(error), error.status)

        return handler

    async def _serve(self, call: Call, steps: Steps, serve: Serve) -> web.StreamResponse:
        call.gateway.main.adopt(asyncio.current_task())
        with call.until_end:
            try:
                for step in call.gateway.steps(steps):
                    await step(call)
            except CallAnswered as answered:
                return answered.response
            return await serve(call)

    async def handle_request(self, request: web.Request, dialect: Dialect[Any]) -> web.StreamResponse:
        """Serve a model call with a dialect of its own, by which its steps know it from here on."""
        call = request[CALL]
        with finding_own_nodes():
            try:
                return await super().handle_request(request, served(call))
            finally:
                call.reading = call.dialect  # its own dialect knows the call: only the collector would free the two

    def record_call(self, session: RolloutSession, dialect: Dialect[Any], *args: Any, **options: Any) -> None:
        """Record an exchange, with what the call's steps have to say of it."""
        super().record_call(session, dialect, *args, **options)
        if not session.released:
            call = call_of(dialect)
            call.record = record = session.trace.calls[-1]
            for step in call.gateway.steps(path.RECORD):
                step(call)
            if self._on_call is not None:
                self._on_call(record)

    async def handle_task_get(self, request: web.Request) -> web.Response:
        """Hand a tool server its rollout's task, answer included, while no program of the agent can run."""
        session = self._session_for(request)
        if session is not None and session.trace.timing.agent.start:
            return web.json_response({"error": "the agent runs: its task is not served any more"}, status=403)
        return await super().handle_task_get(request)

    async def handle_tool(self, request: web.Request) -> web.Response:
        """Ask about a tool call, where the harness does."""
        gateway = self._gateways.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if gateway is None:
            return await super().handle_tool(request)
        if not gateway.main.gates_tools:
            return web.json_response({"error": "this agent's tool calls are not asked about"}, status=404)

        async def ask(call: Call) -> web.StreamResponse:
            copied = request_with(request, call.server_body)
            return await super(RoleInterceptionServer, self).handle_tool(copied)

        return await self._serve_json(Call(request, DIALECTS[0], gateway), path.TOOL, ask)

    async def handle_models(self, request: web.Request) -> web.Response:
        """The endpoint's list of models, without keys; to this server itself, the answer to its health check."""
        if self.watched is not None and self.watched.asked_by(request):
            return web.Response(text=self.watched.answer)
        found = ((dialect, self._gateways.get(dialect.secret(request.headers))) for dialect in DIALECTS)
        call = next((Call(request, dialect, gateway) for dialect, gateway in found if gateway is not None), None)
        serve = super().handle_models
        if call is None:
            return await serve(request)
        response = await self._serve_json(call, path.MODELS, lambda _: serve(request))
        if isinstance(response.body, bytes):
            response.body = Masking(keys_of(call.gateway.main.ctx.client)).data(response.body)
        return response

    async def _serve_json(self, call: Call, steps: Steps, serve: Serve) -> web.Response:
        try:
            response = await self._serve(call, steps, serve)
        except RequestRefused as error:
            return web.json_response({"error": str(error)}, status=error.status)
        assert isinstance(response, web.Response)
        return response


def _passed_on(call: Call, body: bytes) -> web.Request:
    """The request of a call as verifiers' server shall see it: for the session of its bearer, with this body, which it
    parses and takes the digest of for a retry's; a call's own body goes on in its dialect (see `endpoint.py`)."""
    headers = [("Authorization", f"Bearer {call.bearer}"), *call.headers]
    passed_on = request_with(call.request, body, headers)
    passed_on[CALL] = call
    return passed_on


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Whether aiohttp's record is of an error that is not the caller's: those could fill a log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | ConnectionError))
