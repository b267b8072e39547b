"""`RolloutService`: what stands behind every session, between a caller's arguments and the engine.

Invariant: wrong arguments raise before anything is started; all else is in the result. A call that is cancelled,
because its caller is gone or the server stops, leaves nothing.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from verifiers.v1.runtimes import SubprocessConfig

from opencode_openenv.engine import Engine
from opencode_openenv.model_calls import Endpoint, client_of, resolve_endpoint
from opencode_openenv.reachable import UnreachableError, require_reachable
from opencode_openenv.result import RolloutResult
from opencode_openenv.settings import ServerConfig
from opencode_openenv.spec import RolloutSpec, read_arguments


class ServerFullError(Exception):
    """Nobody more may wait; the message says how many do."""


class Places:
    """First come, first served.

    Args:
        running: rollouts at once.
        waiting: callers that may wait for a place.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self._running = running
        self._most_waiting = waiting
        self._free = asyncio.Semaphore(running)
        self.waiting = 0
        """Callers that wait now."""

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place until the end of the context.

        Raises:
            ServerFullError: all places are taken and as many wait as may.
        """
        if self._free.locked() and self.waiting >= self._most_waiting:
            raise ServerFullError(
                f"the server is full: {self._running} rollouts run and {self.waiting} callers wait; try again later, "
                "or start it with a larger --max-concurrent or --max-queued"
            )
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._free.release()


logger = logging.getLogger("verifiers.v1.opencode_openenv")
_STOPPING = "the server is shutting down"


class RolloutService:
    def __init__(self, engine: Engine, config: ServerConfig) -> None:
        self._engine = engine
        self._config = config
        self._places = Places(config.max_concurrent, config.max_queued)
        self._tokenizers: set[tuple[str, str]] = set()
        self._running: set[asyncio.Task[RolloutResult]] = set()
        self._stopping = False

    async def run(self, arguments: Mapping[str, Any]) -> RolloutResult:
        """One rollout, waited for; when the caller is cancelled, it is ended behind them.

        Raises:
            ValueError: wrong arguments.
        """
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

    def _endpoint(self, spec: RolloutSpec) -> Endpoint:
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

    async def _rollout(self, spec: RolloutSpec, endpoint: Endpoint) -> RolloutResult:
        started = time.monotonic()
        try:
            async with self._places.place():
                result = await self._within_limit(spec, endpoint)
        except asyncio.CancelledError:
            why = _STOPPING if self._stopping else "its caller is gone"
            logger.warning("run_rollout %r: ended after %.1f s: %s", spec.task_id, time.monotonic() - started, why)
            raise
        except ServerFullError as error:
            result = _failed(spec, str(error), "refused")
        except UnreachableError as error:
            result = _failed(spec, f"ProviderError: {error}")
        except Exception as error:  # whatever the infrastructure does is told in the result, with its kind
            logger.exception("run_rollout %r failed", spec.task_id)
            result = _failed(spec, f"{type(error).__name__}: {str(error)[:2000]}")
        result.wall_s = round(time.monotonic() - started, 3)
        logger.info("run_rollout %r: %s, reward %s", spec.task_id, result.stop_condition, result.reward)
        return result

    async def _within_limit(self, spec: RolloutSpec, endpoint: Endpoint) -> RolloutResult:
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
