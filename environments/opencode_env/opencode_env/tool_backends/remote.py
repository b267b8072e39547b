"""Servers elsewhere: one that runs already, and instances that an HTTP API makes, deletes, and may pass on calls to."""

import asyncio
import contextlib
import functools
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
from mcp.types import CallToolResult
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError
from verifiers.v1.errors import ToolsetError
from verifiers.v1.utils.aio import run_shielded

from opencode_env.tool_backends.connection import (
    MAX_ANSWER_BYTES,
    TOO_LONG,
    AnswerTooLong,
    BackendServer,
    Transport,
    http_client,
    http_connection,
    text_result,
    without_secrets,
)
from opencode_env.tool_backends.description import (
    BackendFile,
    BackendServerConfig,
    RemoteApiConfig,
    RemoteApiDefaults,
    is_http,
)

logger = logging.getLogger("verifiers.v1.opencode_env.tool_backends")

_REFUSED_CALLS = frozenset({400, 422})
"""What an API says to arguments that it does not take: the caller's doing."""
_PAUSES = (0.5, 2.0, 5.0)
"""Seconds before an instance whose deletion failed is deleted again."""


@dataclass(frozen=True)
class RemoteServer(BackendServer):
    """A server behind a URL, asked with headers that only this side has."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    _answers: deque[int] = field(default_factory=lambda: deque([0], maxlen=1))
    """Its one item is the status of the last answer."""

    def transport(self) -> Transport:
        return http_connection(self.url, self.headers, answered=self._answers.append)

    async def failure(self) -> str | None:
        """Say why it refuses, where it does; nothing else is known of it but its answers."""
        status = self._answers[-1]
        if status in (401, 403):
            return f"it cannot be connected to: it answers {status}, so look at auth_type and auth_details"
        if status >= 400 and not self.patient:
            return f"it cannot be connected to: it answers {status}, so look at its url"
        return None


def remote_url(backend: BackendServerConfig) -> RemoteServer:
    assert backend.url is not None
    return RemoteServer(backend.url, backend.headers())


class _NamedContent(BaseModel):
    model_config = ConfigDict(extra="allow")

    content: list[dict[str, Any]]


def _url(url: str) -> str:
    if not is_http(url):
        raise ValueError("no URL with http:// or https://")
    return url


class Instance(BaseModel):
    """An instance, as the API describes it."""

    model_config = ConfigDict(extra="ignore")

    remote_instance_id: str
    mcp_endpoint_url: Annotated[str, AfterValidator(_url)]


class _NotAnswered(ToolsetError):
    """Nothing came in time: to ask again would take as long."""


class _TooMuch(ToolsetError):
    """The answer is longer than one may be."""


class InstanceApi:
    """Requests to such an API, with a client of it, for one backend."""

    def __init__(self, config: RemoteApiConfig, name: str, client: httpx2.AsyncClient) -> None:
        self._config = config
        self._name = name
        self._client = client

    async def make(self, backend: BackendServerConfig, session: str) -> list[Instance]:
        """Have an instance made; an API may make several."""
        body = {
            "resource_type_identifier": backend.remote_resource_type_identifier,
            "num_instances": 1,
            "session_id": session,
            "instance_scoping": backend.instance_scoping,
            "template_details": None,
        }
        answer = await self._ask("POST", self._config.create_instance_endpoint, body)
        try:
            made = TypeAdapter(list[Instance]).validate_json(answer.content)
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

    async def delete(self, instance: Instance) -> None:
        """Delete an instance, in four tries, two where nothing came in time; it is not an error that there is none."""
        path = _path(self._config.delete_instance_endpoint_template, instance)
        unanswered = 0
        for pause in (*_PAUSES, None):
            try:
                await self._ask("DELETE", path, None, accepted={404})
                return
            except ToolsetError as error:
                unanswered += isinstance(error, _NotAnswered)
                if pause is None or unanswered > 1:
                    raise
                await asyncio.sleep(pause)

    async def call(self, instance: Instance, seconds: float, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool of the instance through the API, for at most so many seconds."""
        path = _path(self._config.call_tool_endpoint_template or "", instance)
        body = {"tool_name": tool, "arguments": arguments}
        try:
            answer = await self._ask("POST", path, body, accepted=_REFUSED_CALLS, timeout=seconds)
        except _TooMuch:
            return text_result(TOO_LONG)
        try:
            # A result must name its content, else any object would be an empty one.
            result = _NamedContent.model_validate_json(answer.content)
        except ValidationError:
            told = without_secrets(answer.text, self._config.headers())
            return text_result(told, is_error=answer.status_code in _REFUSED_CALLS)
        return CallToolResult.model_validate(result.model_dump())

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, accepted: Collection[int] = (), **options: Any
    ) -> httpx2.Response:
        url = f"{self._config.base_url.rstrip('/')}/{path.lstrip('/')}"
        # Not the whole address, which may hold a password or a key.
        asked = f"{method} {path.partition('?')[0]} at the API of tool backend {self._name!r}"
        try:
            answer = await self._client.request(method, url, json=body, **options)
        except httpx2.TimeoutException as error:
            raise _NotAnswered(f"{asked} was not answered in time") from error
        except AnswerTooLong as error:
            raise _TooMuch(f"{asked} was answered with more than {MAX_ANSWER_BYTES} bytes") from error
        except httpx2.HTTPError as error:
            raise ToolsetError(f"{asked} failed: {type(error).__name__}: {error}") from error
        if answer.status_code >= 400 and answer.status_code not in accepted:
            told = without_secrets(answer.text, self._config.headers())[:500]
            raise ToolsetError(f"{asked} was refused ({answer.status_code}): {told}")
        return answer


def _path(template: str, instance: Instance) -> str:
    return template.format(remote_instance_id=quote(instance.remote_instance_id, safe=""))


@contextlib.asynccontextmanager
async def remote_instance(
    backend: BackendServerConfig, file: BackendFile, call_timeout: float, session: str
) -> AsyncIterator[RemoteServer]:
    """Have the API make an instance of a `remote_http_api`, which is deleted on exit; where it stays, the log tells
    somebody to remove it, and the rollout, whose work is done, does not fail. A `ToolsetError` where the API cannot be
    reached, refuses, or answers with something else."""
    inline, known = backend.remote_api_config_inline, file.config.global_remote_apis or {}
    config = inline or known[backend.remote_api_config_ref or ""]
    defaults = file.config.global_remote_api_defaults or RemoteApiDefaults()
    timeout = httpx2.Timeout(defaults.timeout, connect=defaults.connect_timeout)
    made: list[Instance] = []

    async with http_client(config.headers(), timeout) as client:
        api = InstanceApi(config, backend.backend_name_ref, client)

        async def make() -> None:
            made.extend(await api.make(backend, session))

        async def delete() -> None:
            for instance in made:
                try:
                    await api.delete(instance)
                except ToolsetError as error:
                    name = f"instance {instance.remote_instance_id!r} of tool backend {backend.backend_name_ref!r}"
                    logger.error("left behind, to be removed by hand: %s (%s)", name, error)

        try:
            await run_shielded(make())  # cancelled, the instance is known before it is deleted
            called = config.call_tool_endpoint_template is not None
            proxy = functools.partial(api.call, made[0], call_timeout) if called else None
            yield RemoteServer(made[0].mcp_endpoint_url, config.headers(), proxy=proxy, patient=True)
        finally:
            await run_shielded(delete())
