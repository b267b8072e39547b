"""`RoleInterceptionServer`: verifiers' interception server behind a gateway, with a second session for sub-LLM calls.

Private parts of verifiers are used here and in `serving.py` only, pinned by `tests/test_contract.py`: `_handler_for`,
`_aux_handler_for`, `_session_for`, `record_call`, `sessions`, `stack`, `runner`, `tunnel`, and aiohttp's `_read_bytes`.

Invariant: the bearer decides the rollout, the header only which of that rollout's two sessions serves the request; the
sub session's own bearer never leaves this process.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web
from pydantic_core import to_json
from verifiers.v1.clients import BaseClientConfig, Client
from verifiers.v1.dialects import DIALECTS, Dialect
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.interception.base import Slot
from verifiers.v1.session import RolloutSession

from opencode_env.cli_agent.interception.careful_dialect import careful
from opencode_env.cli_agent.interception.chat_answers import whole_answers
from opencode_env.cli_agent.interception.config import GatewayConfig
from opencode_env.cli_agent.interception.conversations import in_conversation
from opencode_env.cli_agent.interception.error_answer import error_answer
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.interception.handed_on import BODY, GATEWAY, handed_on
from opencode_env.cli_agent.interception.histories import Histories
from opencode_env.cli_agent.interception.idle_connections import IdleConnections
from opencode_env.cli_agent.interception.kept_clients import KeptClients
from opencode_env.cli_agent.interception.kept_logprobs import keep, listening
from opencode_env.cli_agent.interception.main_session import MainSession
from opencode_env.cli_agent.interception.masked_client import Masking, keys_of
from opencode_env.cli_agent.interception.own_calls import Handler, note_call, telling
from opencode_env.cli_agent.interception.registered import Registered, mark_of
from opencode_env.cli_agent.interception.request_body import Body, RequestRefused
from opencode_env.cli_agent.interception.request_filter import filter_headers, require_text, routed_headers
from opencode_env.cli_agent.interception.roles import Mark, Role
from opencode_env.cli_agent.interception.strangers import hold_back, known_to
from opencode_env.cli_agent.interception.sub_rollout import SubRollout
from opencode_env.cli_agent.interception.sub_session import BoundedClient, SubSession
from opencode_env.cli_agent.interception.way import watched
from opencode_env.cli_agent.interception.whole_streams import ended_by_its_answer
from opencode_env.cli_agent.rollout import rollout_of

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")


class RoleInterceptionServer(InterceptionServer):
    """verifiers' server behind a gateway per rollout, with a sub session for a rollout that has a `SubRollout`."""

    def __init__(self, *args: Any, gateway: GatewayConfig | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.gateway = gateway or GatewayConfig()
        self._rollouts: dict[str, Registered] = {}
        self._idle = IdleConnections(self.gateway.idle_timeout)
        self._histories = Histories()
        self._kept = KeptClients(self.gateway.mask_keys)
        self.watched = watched(self, self.gateway.probe)

    def _is_sign(self, request: web.BaseRequest) -> bool:
        return self.watched is not None and self.watched.sign.asked_by(request)

    @property
    def load(self) -> int:
        """Rollouts on this server; a sub session is part of its rollout."""
        return len(self._rollouts)

    async def start(self) -> None:
        """Listen, and look after idle connections."""
        await super().start()
        self.stack.push_async_callback(self._kept.close)
        assert self.runner is not None
        assert self.runner.server is not None
        known = known_to(self, self.runner.app)
        hold_back(self.runner.server, self.gateway.max_share, lambda request: self._is_sign(request) or known(request))
        await self.stack.enter_async_context(self._idle.closing(self.runner))

    def register(self, session: RolloutSession) -> tuple[str, str]:
        """Register a rollout, with its sub session when it has one."""
        model_secret, state_secret = super().register(session)
        self.sessions[model_secret] = MainSession.of(session)
        rollout = rollout_of(session.trace)
        gateway = rollout.gateway = Gateway(self.gateway, session, rollout.program)
        rollout.way = None if self.watched is None else self.watched.way
        registered = Registered(gateway, session, model_secret)
        self._histories.open(session, gateway)
        if (side := rollout.live_sub) is not None:
            registered = replace(registered, side=side, sub_bearer=secrets.token_urlsafe(16))
            side.routed, side.session.network_policy = True, session.network_policy
            side.session.client = BoundedClient(self._kept.lend("sub", side.session.ctx.client), side.settings.timeout)
            self.sessions[registered.sub_bearer] = side.session
            self._histories.open(side.session, registered.gateway)
        self._rollouts[model_secret] = registered
        return model_secret, state_secret

    def unregister(self, model_secret: str, state_secret: str) -> None:
        """Take both sessions away; a later call finds neither."""
        super().unregister(model_secret, state_secret)
        if (registered := self._rollouts.pop(model_secret, None)) is not None:
            rollout_of(registered.main.trace).way = None
            self._kept.give_back("main", registered.main.ctx.client)
            if registered.side is not None:
                self._kept.give_back("sub", registered.side.session.ctx.client)
            for ended in (registered.main, self.sessions.pop(registered.sub_bearer, None)):
                self._histories.close(ended)

    @asynccontextmanager
    async def acquire(self, session: RolloutSession) -> AsyncIterator[Slot]:
        """A slot for one rollout, once it can be reached; leaving it ends the rollout's sub calls first."""
        if self.watched is not None:
            await self.watched.wait()
        async with super().acquire(session) as slot, rollout_of(session.trace).ending_sub_calls():
            yield slot

    def _client(self, config: BaseClientConfig) -> Client:
        return self._kept.lend("main", config)

    def _handler_for(self, dialect: Dialect[Any]) -> Handler:
        serve: Handler = super()._handler_for(careful(whole_answers(dialect)))

        async def answer(registered: Registered, request: web.Request) -> web.StreamResponse:
            side = registered.side
            mark = Mark(Role.MAIN, explicit=False, depth=0) if side is None else mark_of(registered, request, dialect)
            if isinstance(mark, web.Response):
                return mark
            if side is not None and mark.role is Role.SUB:
                return await self._serve_sub(registered, side, mark, request, dialect, serve)
            if side is not None and (error := side.check_main(mark)) is not None:
                registered.main.error = error
                return error_answer(dialect, str(error), 400)
            return await self._serve_main(registered, request, dialect, serve)

        return telling(self._guarded(dialect, answer), dialect, self.sessions, lambda trace: rollout_of(trace).program)

    def _aux_handler_for(self, dialect: Dialect[Any], route: str) -> Handler:
        serve: Handler = super()._aux_handler_for(dialect, route)

        async def answer(registered: Registered, request: web.Request) -> web.StreamResponse:
            side = registered.side
            mark = None if side is None else mark_of(registered, request, dialect)
            if isinstance(mark, web.Response):
                return mark
            bearer = registered.sub_bearer if mark is not None and mark.role is Role.SUB else registered.secret
            async with registered.gateway.beside(), registered.gateway.body(request, dialect) as body:
                passed_on = self._passed_on(registered, request, dialect, body, bearer)
                passed_on._read_bytes = to_json(body.said)
                return await serve(passed_on)

        return self._guarded(dialect, answer)

    def _guarded(
        self, dialect: Dialect[Any], answer: Callable[[Registered, web.Request], Awaitable[web.StreamResponse]]
    ) -> Handler:
        """A handler of a rollout's requests behind its gateway."""

        async def handler(request: web.Request) -> web.StreamResponse:
            registered = self._rollouts.get(dialect.secret(request.headers))
            if registered is None:
                return error_answer(dialect, "unauthorized", 401)
            registered.main.adopt(asyncio.current_task())
            if self.watched is not None:
                self.watched.came()
            with self._idle.carrying(request), in_conversation(registered.gateway.conversation(request)):
                try:
                    async with registered.gateway.open_request():
                        require_text(request.headers)
                        return ended_by_its_answer(request, await answer(registered, request))
                except RequestRefused as error:
                    return registered.gateway.refuse(error, dialect)

        return handler

    async def handle_request(self, request: web.Request, dialect: Dialect[Any]) -> web.StreamResponse:
        """Serve a model call whose history is read as it was sampled."""
        session = self.sessions.get(dialect.secret(request.headers))
        own = self._histories.reading(session, handed_on(dialect, request), await request.read())
        with listening(session), own as reading:
            return await super().handle_request(request, reading)

    async def handle_task_get(self, request: web.Request) -> web.Response:
        """Hand a tool server its rollout's task, answer included, while no program of the agent can run."""
        session = self._session_for(request)
        if session is not None and session.trace.timing.agent.start:
            return web.json_response({"error": "the agent runs: its task is not served any more"}, status=403)
        return await super().handle_task_get(request)

    async def _serve_main(
        self, registered: Registered, request: web.Request, dialect: Dialect[Any], serve: Handler
    ) -> web.StreamResponse:
        """Serve a main call when it is its turn."""
        gateway = registered.gateway
        try:
            async with gateway.body(request, dialect, registered.main) as body:
                gateway.main_request(None)
                async with gateway.turn(request, body) as further:
                    return await serve(self._passed_on(registered, request, dialect, body, registered.secret, further))
        except RequestRefused as error:
            gateway.main_request(error)
            raise

    async def _serve_sub(
        self,
        registered: Registered,
        side: SubRollout,
        mark: Mark,
        request: web.Request,
        dialect: Dialect[Any],
        serve: Handler,
    ) -> web.StreamResponse:
        """Serve a sub call when it is its turn."""
        if (problem := side.too_deep(mark)) is not None:
            error = side.session.refusal(problem)
            registered.gateway.pace.charge_refusal()
            return error_answer(dialect, str(error), 400)
        async with side.gate.place() as entered:
            if not entered:
                return error_answer(dialect, "the rollout has ended", 409)
            if request.transport is None or request.transport.is_closing():
                return web.Response(status=499)  # nobody waits for it any more
            async with registered.gateway.body(request, dialect, side.session) as body:
                return await serve(self._passed_on(registered, request, dialect, body, registered.sub_bearer))

    def _passed_on(
        self,
        registered: Registered,
        request: web.Request,
        dialect: Dialect[Any],
        body: Body,
        bearer: str,
        further: Mapping[str, str] | None = None,
    ) -> web.Request:
        """The same request as verifiers' server shall see it: for the session of `bearer`, with this body."""
        headers = routed_headers(request.headers, registered.secret)
        if self.gateway.filter_headers:
            headers = filter_headers(headers, dialect.upstream_path, registered.gateway.rules)
        copied = request.clone(headers=[("Authorization", f"Bearer {bearer}"), *headers, *(further or {}).items()])
        copied[BODY], copied[GATEWAY] = body.said, registered.gateway
        copied._read_bytes = body.identity  # of which verifiers' server takes the digest
        return copied

    async def handle_tool(self, request: web.Request) -> web.Response:
        """Ask about a tool call, where the harness does."""
        registered = self._rollouts.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if registered is None:
            return await super().handle_tool(request)
        if not registered.main.gates_tools:
            return web.json_response({"error": "this agent's tool calls are not asked about"}, status=404)
        registered.main.adopt(asyncio.current_task())
        with self._idle.carrying(request):
            try:
                async with registered.gateway.open_request(), registered.gateway.aside:
                    copied = request.clone()
                    copied._read_bytes = await registered.gateway.read_json(request)
                    return await super().handle_tool(copied)
            except RequestRefused as error:
                return web.json_response({"error": str(error)}, status=error.status)

    async def handle_models(self, request: web.Request) -> web.Response:
        """The endpoint's list of models, without keys; to this server itself, the sign of its life."""
        if self.watched is not None and self._is_sign(request):
            return web.Response(text=self.watched.sign.answer)
        found = (self._rollouts.get(dialect.secret(request.headers)) for dialect in DIALECTS)
        registered = next((one for one in found if one is not None), None)
        if registered is None:
            return await super().handle_models(request)
        registered.main.adopt(asyncio.current_task())
        with self._idle.carrying(request):
            try:
                async with registered.gateway.open_request(), registered.gateway.beside():
                    response = await super().handle_models(request)
            except RequestRefused as error:
                return web.json_response({"error": str(error)}, status=error.status)
        if self.gateway.mask_keys and isinstance(response.body, bytes):
            response.body = Masking(keys_of(registered.main.ctx.client)).data(response.body)
        return response

    def _session_for(self, request: web.Request, **options: Any) -> RolloutSession | None:
        self._idle.seen(request)
        found: RolloutSession | None = super()._session_for(request, **options)
        return found

    def record_call(self, session: RolloutSession, *args: Any, **options: Any) -> None:
        """Record an exchange, and count it against the budgets of its seat."""
        super().record_call(session, *args, **options)
        if session.released:
            return
        trace, call = session.trace, session.trace.calls[-1]
        self._histories.committed(session, call.node)
        keep(trace, call.node)
        if isinstance(session, SubSession):
            session.tally.add(call, trace.nodes)
        elif (gateway := rollout_of(trace).gateway) is not None:
            gateway.count(call, trace.nodes)
            note_call(trace)
