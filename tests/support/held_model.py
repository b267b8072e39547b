"""A scripted model that holds replies back until the test lets them go: calls overlap by order and not by luck."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from aiohttp import web
from opencode_env.scripted_model import ChatRequest, Policy, Reply
from opencode_env.scripted_model.server import PlannedReply

from tests.support.strict_model import StrictModel


@dataclass(frozen=True)
class _HeldPerformance(PlannedReply):
    released: asyncio.Event

    async def play(self, http: web.Request) -> web.StreamResponse:
        await self.released.wait()
        return await super().play(http)


class HeldModel(StrictModel):
    """Answers as its policy says, the held requests not before `released` is set.

    Args:
        policy: maps a request to a reply.
        held: whether a request is held; None = all are.
        server: arguments of `StrictModel`; by default it is not strict.
    """

    def __init__(self, policy: Policy, held: Callable[[ChatRequest], bool] | None = None, **server: Any) -> None:
        super().__init__(policy, **{"strict": False, **server})
        self.released = asyncio.Event()
        self.held = list[ChatRequest]()
        """Those that were held, in the order of their arrival."""
        self._held = held or (lambda request: True)

    def _performance(self, request: ChatRequest, reply: Reply, prompt_tokens: int) -> PlannedReply:
        played = super()._performance(request, reply, prompt_tokens)
        if not self._held(request):
            return played
        self.held.append(request)
        known = {field.name: getattr(played, field.name) for field in fields(played)}
        return _HeldPerformance(**known, released=self.released)
