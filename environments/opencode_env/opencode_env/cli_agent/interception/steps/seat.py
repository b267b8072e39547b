"""Which of a rollout's two sessions serves a request: what its routing headers say, and the place of a sub call."""

import logging

from aiohttp import web

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.refusals import Answered, error_answer
from opencode_env.cli_agent.interception.sub_rollout import Mark, Role, RoleRefused, read_mark

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")


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
