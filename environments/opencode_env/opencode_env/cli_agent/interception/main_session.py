"""The session that serves a rollout's main calls: verifiers' own, without the work that no hook of a task asks for.

verifiers looks in every request for tool results that a hook put in the place of the tool's own, and hashes the whole
history twice for it, also where there are none.
"""

from typing import Any

from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import InterceptRecord
from verifiers.v1.types import Request


class MainSession(RolloutSession):
    """A view of a rollout's session: whatever is set on one of them is set on both."""

    @classmethod
    def of(cls, session: RolloutSession) -> "MainSession":
        """The view of a session."""
        view = cls.__new__(cls)
        view.__dict__ = session.__dict__
        return view

    async def rewrite_request(
        self, request: Request, **options: Any
    ) -> tuple[Request, list[InterceptRecord], str | None]:
        """Run the task's hooks over a request, where it has any or has put a result in the place of another."""
        if not (self.request_interceptors or self.request_stops or self.pinned_tool_results):
            return request, [], None
        found: tuple[Request, list[InterceptRecord], str | None] = await super().rewrite_request(request, **options)
        return found
