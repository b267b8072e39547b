"""An HTTP API that makes instances of tool servers, deletes them, and may pass on calls of their tools."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
from mcp.types import CallToolResult, TextContent
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError
from verifiers.v1.errors import ToolsetError

from opencode_env.tool_backends.authentication import headers_of, without_secrets
from opencode_env.tool_backends.checks import is_http
from opencode_env.tool_backends.connection import Call
from opencode_env.tool_backends.description import BackendServerConfig, RemoteApiConfig, RemoteApiDefaults
from opencode_env.tool_backends.errors import MAX_ANSWER_BYTES, TOO_LONG
from opencode_env.tool_backends.http import AnswerTooLong, http_client

_SAID_CHARS = 500
_REFUSED_CALLS = frozenset({400, 422})
"""What an API says to arguments that it does not take: the caller's doing."""
_PAUSES = (0.5, 2.0, 5.0)
"""Seconds before an instance whose deletion failed is deleted again."""


class _NamedContent(BaseModel):
    model_config = ConfigDict(extra="allow")

    content: list[dict[str, Any]]


def _url(url: str) -> str:
    if not is_http(url):
        raise ValueError("no URL with http:// or https://")
    return url


class Made(BaseModel):
    """An instance, as the API describes it."""

    model_config = ConfigDict(extra="ignore")

    remote_instance_id: str
    mcp_endpoint_url: Annotated[str, AfterValidator(_url)]


class _NotAnswered(ToolsetError):
    """Nothing came in time: to ask again would take as long."""


class _TooMuch(ToolsetError):
    """The answer is longer than one may be."""


class InstanceApi:
    """Requests to such an API, for one backend."""

    def __init__(self, config: RemoteApiConfig, name: str, defaults: RemoteApiDefaults) -> None:
        self._config = config
        self._name = name
        self._headers = headers_of(config)
        self._timeout = httpx2.Timeout(defaults.timeout, connect=defaults.connect_timeout)

    async def make(self, backend: BackendServerConfig, session: str) -> list[Made]:
        """Have an instance made; an API may make several.

        Raises:
            ToolsetError: it cannot be reached, refuses, or answers with something else.
        """
        body = {
            "resource_type_identifier": backend.remote_resource_type_identifier,
            "num_instances": 1,
            "session_id": session,
            "instance_scoping": backend.instance_scoping,
            "template_details": None,
        }
        async with http_client(self._headers, self._timeout) as client:
            answer = await self._ask(client, "POST", self._config.create_instance_endpoint, body)
        try:
            made = TypeAdapter(list[Made]).validate_json(answer.content)
        except ValidationError as error:
            found = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, found["loc"])) or "the whole"
            raise ToolsetError(
                f"the API of tool backend {self._name!r} made something that is not a list of instances with "
                f"remote_instance_id and mcp_endpoint_url: {where}: {found['msg']}"
            ) from None  # its cause would show what was answered, addresses with their keys too
        if not made:
            raise ToolsetError(f"the API of tool backend {self._name!r} made no instance")
        return made

    async def delete(self, instance: Made) -> None:
        """Delete an instance; it is not an error that there is none.

        Raises:
            ToolsetError: it may still be there.
        """
        path = _path(self._config.delete_instance_endpoint_template, instance)
        async with http_client(self._headers, self._timeout) as client:
            await self._ask(client, "DELETE", path, None, accepted={404})

    async def delete_patiently(self, instance: Made) -> None:
        """Delete an instance, again where that was refused.

        Raises:
            ToolsetError: it may still be there.
        """
        for pause in _PAUSES:
            try:
                await self.delete(instance)
            except _NotAnswered:
                raise
            except ToolsetError:
                await asyncio.sleep(pause)
            else:
                return
        await self.delete(instance)

    @contextlib.asynccontextmanager
    async def caller(self, instance: Made, seconds: float) -> AsyncIterator[Call]:
        """What calls the instance's tools through the API."""
        path = _path(self._config.call_tool_endpoint_template or "", instance)
        async with http_client(self._headers, httpx2.Timeout(seconds)) as client:

            async def call(tool: str, arguments: dict[str, Any]) -> CallToolResult:
                body = {"tool_name": tool, "arguments": arguments}
                try:
                    answer = await self._ask(client, "POST", path, body, accepted=_REFUSED_CALLS)
                except _TooMuch:
                    return _said(TOO_LONG, is_error=True)
                try:
                    # A result must name its content, else any object would be an empty one.
                    result = _NamedContent.model_validate_json(answer.content)
                except ValidationError:
                    told = without_secrets(answer.text, self._headers)
                    return _said(told, is_error=answer.status_code in _REFUSED_CALLS)
                return CallToolResult.model_validate(result.model_dump())

            yield call

    async def _ask(
        self,
        client: httpx2.AsyncClient,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        accepted: Collection[int] = (),
    ) -> httpx2.Response:
        url = f"{self._config.base_url.rstrip('/')}/{path.lstrip('/')}"
        # Not the whole address, which may hold a password or a key.
        asked = f"{method} {path.partition('?')[0]} at the API of tool backend {self._name!r}"
        try:
            answer = await client.request(method, url, json=body)
        except httpx2.TimeoutException as error:
            raise _NotAnswered(f"{asked} was not answered in time") from error
        except AnswerTooLong as error:
            raise _TooMuch(f"{asked} was answered with more than {MAX_ANSWER_BYTES} bytes") from error
        except httpx2.HTTPError as error:
            raise ToolsetError(f"{asked} failed: {type(error).__name__}: {error}") from error
        if answer.status_code >= 400 and answer.status_code not in accepted:
            told = without_secrets(answer.text, self._headers)[:_SAID_CHARS]
            raise ToolsetError(f"{asked} was refused ({answer.status_code}): {told}")
        return answer


def _path(template: str, instance: Made) -> str:
    return template.format(remote_instance_id=quote(instance.remote_instance_id, safe=""))


def _said(text: str, *, is_error: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
