"""Servers elsewhere: one that runs already, and instances that an HTTP API makes and deletes."""

import contextlib
import functools
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from verifiers.v1.errors import ToolsetError
from verifiers.v1.utils.aio import run_shielded

from opencode_env.tool_backends.authentication import headers_of
from opencode_env.tool_backends.connection import Opening, Server
from opencode_env.tool_backends.description import BackendServerConfig, RemoteApiDefaults
from opencode_env.tool_backends.http import http_connection
from opencode_env.tool_backends.instance_api import InstanceApi, Made
from opencode_env.tool_backends.reading import BackendFile

logger = logging.getLogger("verifiers.v1.opencode_env.tool_backends")

_WHO_ARE_YOU = (401, 403)
_REFUSED = 400


class Leftovers:
    """What is removed when the environment stops; no rollout fails for it, as its work is done."""

    def __init__(self) -> None:
        self._removals: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    def add(self, name: str, removal: Callable[[], Awaitable[None]], why: ToolsetError) -> None:
        """Note an instance that could not be removed."""
        self._removals.append((name, removal))
        logger.warning("%s could not be removed, it is tried again at the end: %s", name, why)

    async def remove(self) -> None:
        """Try once more; what stays is told, for somebody to remove it by hand."""
        left = []
        while self._removals:
            name, removal = self._removals.pop()
            try:
                await removal()
            except ToolsetError as error:
                left.append(f"{name} ({error})")
        if left:
            logger.error("%d left behind, to be removed by hand: %s", len(left), "; ".join(left))


@dataclass(frozen=True)
class RemoteServer(Server):
    """A server behind a URL, asked with headers that only this side has."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    _answers: deque[int] = field(default_factory=lambda: deque([0], maxlen=1))
    """The status of the last one."""

    @property
    def opening(self) -> Opening:
        return lambda: http_connection(self.url, self.headers, answered=self._answers.append)

    async def failure(self) -> str | None:
        """Why it refuses, where it does; nothing else is known of it but its answers."""
        status = self._answers[-1]
        if status in _WHO_ARE_YOU:
            return f"it cannot be connected to: it answers {status}, so look at auth_type and auth_details"
        if status >= _REFUSED and not self.patient:
            return f"it cannot be connected to: it answers {status}, so look at its url"
        return None


def remote_url(backend: BackendServerConfig) -> RemoteServer:
    """The server of a `remote_url`."""
    assert backend.url is not None
    return RemoteServer(backend.url, headers_of(backend))


@contextlib.asynccontextmanager
async def remote_instance(
    backend: BackendServerConfig, file: BackendFile, call_timeout: float, session: str, leftovers: Leftovers
) -> AsyncIterator[RemoteServer]:
    """Have the API make an instance of a `remote_http_api`; it is deleted on exit, or noted as left over.

    Raises:
        ToolsetError: the API cannot be reached, refuses, or answers with something else.
    """
    inline, known = backend.remote_api_config_inline, file.config.global_remote_apis or {}
    config = inline or known[backend.remote_api_config_ref or ""]
    defaults = file.config.global_remote_api_defaults or RemoteApiDefaults()
    api = InstanceApi(config, backend.backend_name_ref, defaults)
    made: list[Made] = []

    async def make() -> None:
        made.extend(await api.make(backend, session))

    async def delete() -> None:
        for instance in made:
            try:
                await api.delete_patiently(instance)
            except ToolsetError as error:
                name = f"instance {instance.remote_instance_id!r} of tool backend {backend.backend_name_ref!r}"
                leftovers.add(name, functools.partial(api.delete, instance), error)

    try:
        await run_shielded(make())  # cancelled, the instance is known before it is deleted
        async with contextlib.AsyncExitStack() as stack:
            proxy = None
            if config.call_tool_endpoint_template is not None:
                proxy = await stack.enter_async_context(api.caller(made[0], call_timeout))
            yield RemoteServer(made[0].mcp_endpoint_url, headers_of(config), proxy=proxy, patient=True)
    finally:
        await run_shielded(delete())
