"""Servers elsewhere: one that runs already, and instances that an HTTP API makes and deletes."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from verifiers.v1.errors import ToolsetError
from verifiers.v1.utils.aio import run_shielded

from opencode_env.simulation.backends.authentication import headers_of
from opencode_env.simulation.backends.connection import Opening
from opencode_env.simulation.backends.description import (
    BackendServerConfig,
    RemoteApiConfig,
    RemoteApiDefaults,
)
from opencode_env.simulation.backends.reading import BackendFile

logger = logging.getLogger("verifiers.v1.opencode_env.simulation.backends")

_CONNECT_SECONDS = 30.0
_READ_SECONDS = 600.0
"""A call has a limit of its own."""
_SAID_CHARS = 500
_REFUSED_CALLS = frozenset({400, 422})
"""What an API says to arguments that it does not take: the caller's doing."""

Call = Callable[[str, dict[str, Any]], Awaitable[CallToolResult]]


@dataclass(frozen=True)
class RemoteServer:
    """A server behind a URL, asked with headers that only this side has."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    proxy: Call | None = None
    patient: bool = False

    @property
    def opening(self) -> Opening:
        """A connection with the headers."""
        return lambda: _connection(self.url, self.headers)

    async def failure(self) -> str | None:
        """Nothing is known of it but its answers."""
        return None

    def call(self) -> Call | None:
        """Calls through the API, where it wants that."""
        return self.proxy


def _connection(url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Any]:
    @contextlib.asynccontextmanager
    async def connected() -> AsyncIterator[Any]:
        timeout = httpx2.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
        # No redirects, which is the client's default: the headers are for this host alone.
        async with (
            httpx2.AsyncClient(headers=dict(headers), timeout=timeout) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    return connected()


def remote_url(backend: BackendServerConfig) -> RemoteServer:
    """The server of a `remote_url`."""
    assert backend.url is not None
    return RemoteServer(backend.url, headers_of(backend))


class _NamedContent(BaseModel):
    model_config = ConfigDict(extra="allow")

    content: list[dict[str, Any]]


class _Made(BaseModel):
    """An instance, as the API describes it."""

    model_config = ConfigDict(extra="ignore")

    remote_instance_id: str
    mcp_endpoint_url: str


@contextlib.asynccontextmanager
async def remote_instance(
    backend: BackendServerConfig, file: BackendFile, call_timeout: float, session: str
) -> AsyncIterator[RemoteServer]:
    """Have the API make an instance of a `remote_http_api`; it is deleted on exit.

    Raises:
        ToolsetError: the API cannot be reached, refuses, or answers with something else.
    """
    api = (
        backend.remote_api_config_inline or (file.config.global_remote_apis or {})[backend.remote_api_config_ref or ""]
    )
    defaults = file.config.global_remote_api_defaults or RemoteApiDefaults()
    headers = headers_of(api)
    timeout = httpx2.Timeout(defaults.timeout, connect=defaults.connect_timeout)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout) as client:
        instances = _Api(api, client, backend.backend_name_ref)
        made: list[_Made] = []

        async def make() -> None:
            made.extend(await instances.make(backend, session))

        try:
            await run_shielded(make())  # cancelled, the instance is known before it is deleted
            proxy = None if api.call_tool_endpoint_template is None else instances.caller(made[0], call_timeout)
            yield RemoteServer(made[0].mcp_endpoint_url, headers, proxy, patient=True)
        finally:
            await run_shielded(instances.delete(made))


@dataclass(frozen=True)
class _Api:
    """Requests to an API that makes instances."""

    config: RemoteApiConfig
    client: httpx2.AsyncClient
    name: str

    async def make(self, backend: BackendServerConfig, session: str) -> list[_Made]:
        body = {
            "resource_type_identifier": backend.remote_resource_type_identifier,
            "num_instances": 1,
            "session_id": session,
            "instance_scoping": backend.instance_scoping,
            "template_details": None,
        }
        answer = await self._ask("POST", self.config.create_instance_endpoint, body)
        try:
            made = TypeAdapter(list[_Made]).validate_json(answer.content)
        except ValidationError as error:
            raise ToolsetError(
                f"the API of tool backend {self.name!r} made something that is no list of instances with "
                f"remote_instance_id and mcp_endpoint_url: {answer.text[:_SAID_CHARS]}"
            ) from error
        if not made:
            raise ToolsetError(f"the API of tool backend {self.name!r} made no instance")
        return made

    async def delete(self, made: list[_Made]) -> None:
        """Delete them all; the error of one is raised when all were tried."""
        failed = []
        for instance in made:
            path = self._path(self.config.delete_instance_endpoint_template, instance)
            try:
                await self._ask("DELETE", path, None, accepted={404})
            except ToolsetError as error:
                logger.error("instance %s is left behind: %s", instance.remote_instance_id, error)
                failed.append(error)
        if failed:
            raise failed[0]

    def caller(self, instance: _Made, seconds: float) -> Call:
        """Calls the instance's tools through the API."""
        path = self._path(self.config.call_tool_endpoint_template or "", instance)

        async def call(tool: str, arguments: dict[str, Any]) -> CallToolResult:
            body = {"tool_name": tool, "arguments": arguments}
            answer = await self._ask("POST", path, body, accepted=_REFUSED_CALLS, timeout=seconds)
            refused = answer.status_code in _REFUSED_CALLS
            try:
                # A result must name its content, else any object would be an empty one.
                result = _NamedContent.model_validate_json(answer.content)
            except ValidationError:
                return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=refused)
            return CallToolResult.model_validate(result.model_dump())

        return call

    def _path(self, template: str, instance: _Made) -> str:
        return template.format(remote_instance_id=quote(instance.remote_instance_id, safe=""))

    async def _ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        *,
        accepted: Collection[int] = (),
        timeout: float | None = None,
    ) -> httpx2.Response:
        url = f"{self.config.base_url.rstrip('/')}/{path.lstrip('/')}"
        asked = f"{method} {url} of tool backend {self.name!r}"
        limit = self.client.timeout if timeout is None else timeout
        try:
            answer = await self.client.request(method, url, json=body, timeout=limit)
        except httpx2.TimeoutException as error:
            raise ToolsetError(f"{asked} was not answered in time") from error
        except httpx2.HTTPError as error:
            raise ToolsetError(f"{asked} failed: {type(error).__name__}: {error}") from error
        if answer.status_code >= 400 and answer.status_code not in accepted:
            raise ToolsetError(f"{asked} was refused ({answer.status_code}): {answer.text[:_SAID_CHARS]}")
        return answer
