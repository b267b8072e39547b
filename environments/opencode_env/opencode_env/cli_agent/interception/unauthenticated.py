"""Requests that belong to no rollout, or to nothing that is served: all of them share one small part of the server.

Invariant: whoever sends them, and however many, waits for the others of their kind and for nobody else's requests.
"""

import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from verifiers.v1.dialects import DIALECTS
from verifiers.v1.interception.server import InterceptionServer

from opencode_env.cli_agent.interception.cpu_budget import CpuBudget


def known_to(server: InterceptionServer, app: web.Application) -> Callable[[web.BaseRequest], bool]:
    """Whether a request is for something that is served, and of somebody who may ask for it."""
    served = frozenset(resource.canonical for resource in app.router.resources())

    def is_known(secret: str) -> bool:
        return secret in server.sessions or secret in server.state_sessions or secret in server.state_service_secrets

    def is_ours(request: web.BaseRequest) -> bool:
        if request.path not in served:
            return False
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return is_known(bearer) or any(is_known(dialect.secret(request.headers)) for dialect in DIALECTS)

    return is_ours


def hold_back(server: web.Server, share: float | None, is_ours: Callable[[web.BaseRequest], bool]) -> None:
    """Let a server that has no connection yet serve others within a CPU budget of their own."""
    budget = CpuBudget(share)
    serve: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = server.request_handler

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if not is_ours(request):
            await budget.turn()
            budget.charge_refusal()
        return await serve(request)

    server.request_handler = handler
    logging.getLogger("aiohttp.server").addFilter(_is_our_fault)


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Whether aiohttp's record is of an error that is not the caller's: those could fill a log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | ConnectionError))
