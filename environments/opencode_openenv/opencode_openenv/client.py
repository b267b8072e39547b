"""`OpenCodeEnvClient`: the client of a `run_rollout` server, ours or OpenEnv's own of 0.3.

A call waits as long as its rollout may take. When the client gives it up, it gives its connection up, too, so that the
server ends the rollout.
"""

import asyncio
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openenv.core.containers.runtime.providers import LocalDockerProvider
from openenv.core.mcp_client import MCPToolClient
from pydantic import ValidationError

from opencode_openenv.listening import TOKEN_VARIABLE
from opencode_openenv.result import RolloutResult
from opencode_openenv.spec import RolloutSpec, read_arguments


def with_token(base_url: str, token: str | None) -> str:
    """The URL with the token in it: OpenEnv's clients before 0.10 can send no header of their own."""
    if token is None:
        return base_url
    parts = urlsplit(base_url)
    return urlunsplit(parts._replace(netloc=f"openenv:{token}@{parts.netloc.rpartition('@')[2]}"))


@contextmanager
def without_secrets(base_url: str) -> Iterator[None]:
    """Take a URL's token out of the `ConnectionError` that OpenEnv's client raises."""
    secret = urlsplit(base_url).netloc.rpartition("@")[0]
    try:
        yield
    except ConnectionError as error:
        if not secret:
            raise
        raise ConnectionError(str(error).replace(secret, "***")) from None


def read_result(answer: Any) -> RolloutResult:
    """The result in an answer: its text, or an object or mapping with `content[0].text`, or either of them below
    `result`; a `ValueError` where there is none."""
    text = _text(answer)
    if text is None and isinstance(answer, Mapping) and "reward" in answer:
        text = json.dumps(answer)
    if text is None:
        raise ValueError(f"the server's answer holds no text: {type(answer).__name__} {str(answer)[:200]!r}")
    try:
        return RolloutResult.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"the server's answer is not a RolloutResult: {text[:200]!r}: {error}") from error


def _text(answer: Any) -> str | None:
    for holder in (answer, _part(answer, "result")):
        if isinstance(holder, str):
            return holder
        content = _part(holder, "content")
        first = content[0] if isinstance(content, (list, tuple)) and content else None
        text = _part(first, "text")
        if isinstance(text, str):
            return text
    return None


def _part(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


_NEW_ARGUMENTS = {"token_ids", "tokenizer", "temperature", "renderer", "command_timeout_s", "reward_min", "reward_max"}
"""What OpenEnv's own server does not know; they are sent only when they say something else than their defaults."""
_SILENT_SECONDS = 3600.0
"""How long the server may not answer to a ping."""


class OpenCodeEnvClient(MCPToolClient):
    """A session with the server; a context manager, sync and async.

    The `token` is that which the server asks for; a rollout may wait `queue_timeout_s` seconds for a place, beyond what
    it may take itself; further `options` are those of OpenEnv's client, such as `connect_timeout_s` or `provider`.
    """

    def __init__(
        self, base_url: str, *, token: str | None = None, queue_timeout_s: float = 3600.0, **options: Any
    ) -> None:
        self._address = with_token(base_url, token)
        # A trainer that steps between its rollouts answers to no ping meanwhile, and OpenEnv's 20 s end the session.
        options.setdefault("websocket_ping_timeout_s", _SILENT_SECONDS)
        super().__init__(base_url=self._address, **options)
        self._queue_timeout_s = queue_timeout_s

    async def _connect_async(self) -> "OpenCodeEnvClient":
        with without_secrets(self._address):
            connected: OpenCodeEnvClient = await super()._connect_async()
        return connected

    @classmethod
    async def from_docker_image(
        cls, image: str, provider: Any = None, *, token: str | None = None, **options: Any
    ) -> "OpenCodeEnvClient":
        """A session with a server in a new container of an `image` that this package's `Dockerfile` makes; it ends with
        the session.

        The `provider` (None: OpenEnv's for Docker, with its `options`, such as `env_vars`) publishes it at every
        address of this machine, so it gets a token that nobody else knows. A `RuntimeError` where it did not start, a
        `TimeoutError` where it did not answer.
        """
        provider, token = provider or LocalDockerProvider(), token or secrets.token_urlsafe(16)
        variables = {**(options.pop("env_vars", None) or {}), TOKEN_VARIABLE: token}
        base_url = await asyncio.to_thread(provider.start_container, image, env_vars=variables, **options)
        try:
            await asyncio.to_thread(provider.wait_for_ready, base_url)
            client = cls(base_url, token=token, provider=provider)
            await client.connect()
        except BaseException:
            provider.stop_container()
            raise
        return client

    def run_rollout(self, **arguments: Any) -> Any:
        """Run one rollout, by the fields of `RolloutSpec`; a `RolloutResult`, or in async code an awaitable of it.

        A `ValueError` for wrong arguments, found here or by the server; a `TimeoutError` where no answer came although
        the rollout's time and `queue_timeout_s` were up; a `ConnectionError` where the server cannot be reached; a
        `RuntimeError` where it failed.
        """
        spec = read_arguments(arguments)
        return self._dispatch(lambda: self._run(spec))

    _message_timeout: float
    """OpenEnv's: seconds that the next answer may take."""

    async def _run(self, spec: RolloutSpec) -> RolloutResult:
        usual = self._message_timeout
        limit = self._message_timeout = spec.longest_seconds + self._queue_timeout_s
        try:
            new = spec.model_dump(include=_NEW_ARGUMENTS, exclude_defaults=True)
            answer = await self.call_tool("run_rollout", **spec.model_dump(exclude=_NEW_ARGUMENTS), **new)
        except RuntimeError as error:
            if "(type: invalid_args)" in str(error):
                raise ValueError(str(error)) from error
            raise
        except BaseException as error:
            await self._disconnect_async()  # an answer that came later would be taken for the next call's
            if isinstance(error, TimeoutError):
                told = f"run_rollout {spec.task_id!r}: no answer in {limit:g} s (queue_timeout_s)"
                raise TimeoutError(told) from error
            raise
        finally:
            self._message_timeout = usual
        return read_result(answer)
