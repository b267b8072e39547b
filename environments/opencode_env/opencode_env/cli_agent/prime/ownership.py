"""Who owns a sandbox, from the request that creates it to its deletion.

Invariant: each request carries a label that no other has. When its answer is lost, whatever it made is found by that
label and deleted; when a deletion fails for good, it is reported with what finds the sandbox.
"""

import asyncio
import logging
import time
from typing import Any

from prime_sandboxes import APIError, CreateSandboxRequest

from opencode_env.cli_agent.prime.errors import http_status, surely_refused
from opencode_env.cli_agent.prime.left_behind import OURS, delete_sandboxes, list_sandboxes, platform

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.prime")

_GONE = 404
_DELETION_PAUSES_S = (0.5, 2.0, 5.0)
_LOST_LOOKS, _LOST_PAUSE_S = 3, 1.0
"""A creation whose answer was lost may still be on its way."""


class Ownership:
    """One sandbox's. Its states: not asked for, asked for, known by its id, deleted.

    Args:
        name: of the runtime, unique.
        lifetime_minutes: after which the platform ends the sandbox itself; -1 is never.
    """

    def __init__(self, name: str, lifetime_minutes: int) -> None:
        self.label = f"sandbox:{name}"
        self._lifetime_minutes = lifetime_minutes
        self.asked = False
        """Whether there may be a sandbox."""
        self.id: str | None = None
        self.labels: list[str] = []

    def stamped(self, request: CreateSandboxRequest) -> CreateSandboxRequest:
        """The request with our labels and the lifetime."""
        self.labels = list(dict.fromkeys([*request.labels, OURS, self.label]))
        return request.model_copy(update={"labels": self.labels, "timeout_minutes": self._lifetime_minutes})

    def lost(self) -> bool:
        """Whether there may be a sandbox of which nobody has the id."""
        return self.asked and self.id is None

    def find_and_delete(self) -> None:
        """Delete what a creation made whose answer was lost (blocking, without an event loop).

        Raises:
            APIError: the platform cannot be asked.
        """
        with platform() as client:
            for look in range(_LOST_LOOKS):
                if look:
                    time.sleep(_LOST_PAUSE_S)
                if found := list_sandboxes(client, [self.label]):
                    delete_sandboxes(client, [sandbox.id for sandbox in found])
                    break
        self.asked = False

    def delete_now(self) -> None:
        """Delete the sandbox without an event loop; idempotent.

        Raises:
            APIError: the platform cannot be asked.
        """
        if self.lost():
            self.find_and_delete()
        elif self.asked and self.id is not None:
            with platform() as client:
                try:
                    client.delete(self.id)
                except APIError as error:
                    if http_status(error) != _GONE:
                        raise
            self.asked = False


class OwnedClient:
    """The SDK's client, as one runtime uses it: its sandbox is created and deleted under an `Ownership`."""

    def __init__(self, client: Any, ownership: Ownership) -> None:
        self._client = client
        self._ownership = ownership

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def create(self, request: CreateSandboxRequest) -> Any:
        """Ask for the sandbox.

        Raises:
            APIError: there is none, or nobody knows.
        """
        own = self._ownership
        own.asked = True
        try:
            sandbox = await self._client.create(own.stamped(request))
        except APIError as error:
            own.asked = not surely_refused(error)
            raise
        own.id = sandbox.id
        return sandbox

    async def delete(self, sandbox_id: str) -> None:
        """Delete the sandbox; tried again when that fails, and reported when it fails for good."""
        for pause in (*_DELETION_PAUSES_S, None):
            try:
                await self._client.delete(sandbox_id)
            except APIError as error:
                if http_status(error) == _GONE:
                    break
                if pause is None:
                    report_left(sandbox_id, self._ownership, error)
                    return
                await asyncio.sleep(pause)
            else:
                break
        self._ownership.asked = False


def report_left(sandbox: str, own: Ownership, error: BaseException) -> None:
    """Say what may still cost something, and how to end it."""
    logger.error(
        "prime sandbox %s could not be deleted and costs until its lifetime is over: %s; its labels find it: %s",
        sandbox,
        error,
        ", ".join(own.labels),
    )
