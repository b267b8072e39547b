"""What a server knows of one rollout, and which of its sessions a request is for."""

import logging
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from verifiers.v1.dialects import Dialect
from verifiers.v1.session import RolloutSession

from opencode_env.cli_agent.interception.error_answer import error_answer
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.interception.roles import Mark, RoleRefused, read_mark
from opencode_env.cli_agent.interception.sub_rollout import SubRollout

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")


@dataclass(frozen=True)
class Registered:
    """One rollout on this server."""

    gateway: Gateway
    main: RolloutSession
    secret: str
    side: SubRollout | None = None
    sub_bearer: str = ""


def mark_of(registered: Registered, request: web.Request, dialect: Dialect[Any]) -> Mark | web.Response:
    """The request's mark, or the 400 of one that means nothing, which is recorded."""
    assert registered.side is not None
    try:
        return read_mark(request)
    except RoleRefused as error:
        registered.gateway.pace.charge_refusal()
        if registered.side.note_bad_role(str(error)):
            logger.warning("refused a model call: id=%s %s", registered.main.trace.id, error)
        return error_answer(dialect, str(error), 400)
