"""`RolloutService`: what stands behind every session, between a caller's arguments and the engine.

Wrong arguments raise before anything is started; all else is in the result. A call that is cancelled, because its
caller is gone or the server stops, leaves nothing. What a rollout asks for and certainly cannot be reached is said
before it starts.
"""

import asyncio
import logging
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from verifiers.v1.runtimes import SubprocessConfig

from opencode_openenv.model_calls import ModelEndpoint, client_of, resolve_endpoint
from opencode_openenv.result import RolloutResult
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.settings import ServerConfig
from opencode_openenv.spec import RolloutSpec, read_arguments

_PAUSES = (0.0, 0.5, 1.0)
"""Seconds before each attempt: an engine that is being replaced may come back."""
_SECONDS = 5.0
_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


class _UnreachableError(Exception):
    """Nobody listens where a rollout must ask; the message says what, and never the server's own address."""


async def require_reachable(spec: RolloutSpec, endpoint: ModelEndpoint) -> None:
    """Raise `_UnreachableError` where it is known that the model's endpoint or the tokenizer cannot be reached."""
    if why := await _unreachable(endpoint.base_url):
        named = f"base_url {endpoint.base_url}" if spec.base_url else f'the server\'s own endpoint "{spec.endpoint}"'
        raise _UnreachableError(f"{named} cannot be reached: {why}")
    tokenizer = spec.tokenizer or endpoint.model
    if not spec.token_ids or not _HUB_NAME.fullmatch(tokenizer) or Path(tokenizer).exists() or _is_cached(tokenizer):
        return
    if why := await _unreachable(os.environ.get("HF_ENDPOINT") or "https://huggingface.co"):
        raise _UnreachableError(
            f"tokenizer {tokenizer!r} is not on the server, and the Hub cannot be reached: {why}; give a directory of "
            "the server, or fill its cache first"
        )


def _is_cached(tokenizer: str) -> bool:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return True
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    # renderers loads gated Llama tokenizers from a mirror of this owner.
    names = (tokenizer, f"unsloth/{tokenizer.rpartition('/')[2]}")
    kept = (cache / f"models--{name.replace('/', '--')}" / "snapshots" for name in names)
    return any(any(snapshots.glob("*/tokenizer*")) for snapshots in kept)


async def _unreachable(url: str) -> str:
    """Return why nobody can be connected to there; empty if somebody can, or a proxy would do it."""
    parts = urlsplit(url)
    proxies = getproxies()
    if (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or ""):
        return ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    why = ""
    for pause in _PAUSES:
        await asyncio.sleep(pause)
        try:
            async with asyncio.timeout(_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except TimeoutError:
            return f"no connection within {_SECONDS:g} s"
        except (OSError, UnicodeError) as error:
            why = _told(error)
        else:
            writer.close()
            return ""
    return why


def _told(error: OSError | UnicodeError) -> str:
    """The reason, without an address."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name is not known"
    return os.strerror(error.errno).lower() if error.errno else "nobody listens there"


class _ServerFullError(Exception):
    """Nobody more may wait; the message says how many do."""


logger = logging.getLogger("verifiers.v1.opencode_openenv")
_STOPPING = "the server is shutting down"


class RolloutService:
    def __init__(self, engine: RolloutEngine, config: ServerConfig) -> None:
        self._engine = engine
        self._config = config
        self._free = asyncio.Semaphore(config.max_concurrent)
        self._waiting = 0
        self._tokenizers: set[tuple[str, str]] = set()
        self._running: set[asyncio.Task[RolloutResult]] = set()
        self._stopping = False

    async def run(self, arguments: Mapping[str, Any]) -> RolloutResult:
        """One rollout, waited for; when the caller is cancelled, it is ended behind them. A `ValueError` for wrong
        arguments."""
        spec = self._read(arguments)
        endpoint = self._endpoint(spec)
        if self._stopping:
            return _failed(spec, _STOPPING, "refused")
        # In a task of its own: it is cancelled once, however often its caller is, and `stop` waits for its end.
        task = asyncio.create_task(self._rollout(spec, endpoint))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `stop`, not by the caller
                return _failed(spec, _STOPPING, "refused")
            task.cancel()
            raise

    async def stop(self) -> None:
        """Refuse further calls, end all rollouts, and wait until nothing is left of them."""
        self._stopping = True
        while self._running:
            running = list(self._running)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _endpoint(self, spec: RolloutSpec) -> ModelEndpoint:
        try:
            endpoint = resolve_endpoint(spec)
            client_of(spec, endpoint, "")
        except ValueError as error:
            raise ValueError(f"invalid arguments: {error}") from error
        if spec.token_ids:  # verifiers keeps every tokenizer that it has loaded
            name, most = spec.tokenizer or endpoint.model, self._config.max_tokenizers
            if (name, spec.renderer) not in self._tokenizers and len(self._tokenizers) >= most:
                raise ValueError(
                    f"invalid argument tokenizer: {name!r} would be one more than the {most} that this server keeps in "
                    "memory; start it anew, or with a larger --max-tokenizers"
                )
            self._tokenizers.add((name, spec.renderer))
        return endpoint

    def _read(self, arguments: Mapping[str, Any]) -> RolloutSpec:
        spec = read_arguments(arguments)
        longest = self._config.max_rollout_s
        if spec.longest_seconds > longest:
            raise ValueError(
                f"invalid arguments: agent_timeout_s and the limits of the commands add up to "
                f"{spec.longest_seconds:g} s, above this server's {longest:g} s (--max-rollout-s)"
            )
        if spec.template and isinstance(self._config.runtime, SubprocessConfig):
            raise ValueError(
                "invalid argument template: this server runs rollouts in local sandboxes, which have no image; start "
                "it with --runtime.type podman, docker or prime, or leave template out"
            )
        return spec

    async def _rollout(self, spec: RolloutSpec, endpoint: ModelEndpoint) -> RolloutResult:
        started = time.monotonic()
        try:
            async with self._place():
                result = await self._within_limit(spec, endpoint)
        except asyncio.CancelledError:
            why = _STOPPING if self._stopping else "its caller is gone"
            logger.warning("run_rollout %r: ended after %.1f s: %s", spec.task_id, time.monotonic() - started, why)
            raise
        except _ServerFullError as error:
            result = _failed(spec, str(error), "refused")
        except _UnreachableError as error:
            result = _failed(spec, f"ProviderError: {error}")
        except Exception as error:  # whatever the infrastructure does is told in the result, with its kind
            logger.exception("run_rollout %r failed", spec.task_id)
            result = _failed(spec, f"{type(error).__name__}: {str(error)[:2000]}")
        result.wall_s = round(time.monotonic() - started, 3)
        logger.info("run_rollout %r: %s, reward %s", spec.task_id, result.stop_condition, result.reward)
        return result

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        config = self._config
        if self._free.locked() and self._waiting >= config.max_queued:
            raise _ServerFullError(
                f"the server is full: {config.max_concurrent} rollouts run and {self._waiting} callers wait; try again "
                "later, or start it with a larger --max-concurrent or --max-queued"
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()

    async def _within_limit(self, spec: RolloutSpec, endpoint: ModelEndpoint) -> RolloutResult:
        try:
            async with asyncio.timeout(spec.longest_seconds) as limit:
                await require_reachable(spec, endpoint)
                return await self._engine.rollout(spec, endpoint)
        except TimeoutError:
            if not limit.expired():
                raise
            return _failed(spec, f"the rollout had not ended after {spec.longest_seconds:g} s")


def _failed(spec: RolloutSpec, why: str, stop: str = "error") -> RolloutResult:
    return RolloutResult(
        task_id=spec.task_id,
        mode=spec.mode,
        error=why,
        stop_condition=stop,
        training_trace_reason="there was no rollout",
    )
