"""A request's arrival: who makes it, in which conversation, which of its rollout's two sessions serves it, and what
holds it back: the place of a sub call; its rollout's share of the serving process, of requests at once, of memory."""

import logging

from aiohttp import web
from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.own_calls import MARK_HEADER, note_program_call
from opencode_env.cli_agent.interception.refusals import Answered, RequestRefused, error_answer
from opencode_env.cli_agent.interception.sub_rollout import Mark, Role, RoleRefused, read_mark

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")


async def identify_caller(call: Call) -> None:
    """Tell the agent's own program from the programs that it started. Needs the headers; changes `caller`, `key` and
    `conversation`. A failed call of a program is not left where verifiers looks for what ended the agent, and what it
    says of its conversation counts for nothing."""
    headers, main, echoes = call.request.headers, call.gateway.main, call.gateway.echoes
    call.caller = call.gateway.program.identify(headers.get(MARK_HEADER))
    call.key = headers.get(IDEMPOTENCY_KEY_HEADER)
    if call.caller.own and echoes is not None:
        call.conversation = headers.get(echoes.conversation_header)
    before = main.error

    def leave_no_failure() -> None:
        if not call.gateway.program.is_own(call.caller):
            main.error = before

    call.until_end.callback(leave_no_failure)


def record_caller(call: Call) -> None:
    """Note on the main trace that a program of the agent made the recorded call."""
    if call.sub is None and not call.gateway.program.is_own(call.caller):
        note_program_call(call.gateway.main.trace)


async def open_request(call: Call) -> None:
    """Take the request up, open until its end, when it is the rollout's turn to be worked for.

    Raises:
        RequestRefused: the rollout has too many open already.
    """
    gateway, limit = call.gateway, call.gateway.config.max_waiting_calls
    if limit is not None and gateway.open >= limit:
        raise RequestRefused(f"more than {limit} requests of this rollout are open", 429)
    gateway.open += 1

    def close() -> None:
        gateway.open -= 1

    call.until_end.callback(close)
    await gateway.cpu.turn()


async def choose_seat(call: Call) -> None:
    """Find the session of a model call; a sub call waits for its place. Changes `session`, `sub` and `bearer`.

    Raises:
        Answered: the headers mean nothing, or the call may not be made.
    """
    gateway, side = call.gateway, call.gateway.side
    mark = _mark_of(call)
    if side is None or mark.role is Role.MAIN:
        if side is not None and (error := side.check_main(mark)) is not None:
            gateway.main.error = error
            raise Answered(error_answer(call.dialect, str(error), 400))
        call.session, call.bearer = gateway.main, gateway.secret
        return
    if mark.depth > side.settings.max_depth:
        gateway.cpu.charge_refusal()
        problem = "this sub-agent is nested deeper than max_depth allows"
        raise Answered(error_answer(call.dialect, str(side.session.refusal(problem)), 400))
    if not await side.slots.place(call.until_end):
        raise Answered(error_answer(call.dialect, "the rollout has ended", 409))
    if call.request.transport is None or call.request.transport.is_closing():
        raise Answered(web.Response(status=499))  # nobody waits for it any more
    call.session, call.sub, call.bearer = side.session, side, gateway.sub_bearer


async def choose_side(call: Call) -> None:
    """Find whose endpoint a request is for that is not a model call. Changes `bearer`.

    Raises:
        Answered: the headers mean nothing.
    """
    gateway = call.gateway
    call.bearer = gateway.sub_bearer if _mark_of(call).role is Role.SUB else gateway.secret


def _mark_of(call: Call) -> Mark:
    """The request's mark; one that means nothing is recorded."""
    gateway = call.gateway
    if gateway.side is None:
        return Mark(Role.MAIN, explicit=False, depth=0)
    try:
        return read_mark(call.request)
    except RoleRefused as error:
        gateway.cpu.charge_refusal()
        if gateway.side.note_bad_role(str(error)):
            logger.warning("refused a model call: id=%s %s", gateway.main.trace.id, error)
        raise Answered(error_answer(call.dialect, str(error), 400)) from None


async def wait_aside(call: Call) -> None:
    """Wait for one of the rollout's few places for requests that are not model calls."""
    await call.gateway.aside.acquire()
    call.until_end.callback(call.gateway.aside.release)


async def count_as_load(call: Call) -> None:
    """Count the request as a program's, where those are known: the agent's own makes model calls only."""
    if call.gateway.program.is_known:
        call.until_end.enter_context(call.gateway.load.carrying())


async def hold_memory(call: Call) -> None:
    """Wait until the rollout may hold one more body of that size; the engine keeps what it parsed as long."""
    largest, request = call.gateway.config.max_body or 0, call.request
    # A packed body may unpack to anything.
    size = None if "Content-Encoding" in request.headers else request.content_length
    await call.gateway.memory.hold(min(largest, size or largest), call.until_end)
