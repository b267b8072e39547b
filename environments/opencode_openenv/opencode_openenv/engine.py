"""One rollout from its description to its result, on the environment that `vf-eval` runs.

Invariant: the path of a rollout is `Env.run_slot`, as for every other caller here; this module has only what its task,
endpoint and sampling are, and what its episode means to the caller.
"""

import hashlib
import hmac
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.env import EnvConfig
from verifiers.v1.task import Task
from verifiers.v1.utils.loaders import load_environment

from opencode_openenv.catalog import Endpoint
from opencode_openenv.model_calls import client_of, sampling_of
from opencode_openenv.outcome import result_of
from opencode_openenv.result import RolloutResult
from opencode_openenv.spec import RolloutSpec
from opencode_openenv.task import RolloutTask


class LentKeys:
    """Keys of callers, lent to verifiers' clients for as long as their rollouts last.

    verifiers reads a key from the environment variable that an endpoint's configuration names, and records the
    configuration on the trace: so a key gets a variable of its own. Equal keys share one, whose name says nothing of
    the key, and none outlives its last rollout. Programs in a sandbox see none of this process's variables.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._uses: Counter[str] = Counter()

    @contextmanager
    def lend(self, key: str) -> Iterator[str]:
        """The name of the variable that holds `key` until the end of the context."""
        digest = hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()[:32]
        name = f"OPENCODE_OPENENV_{digest.upper()}_KEY"
        os.environ[name] = key
        self._uses[name] += 1
        try:
            yield name
        finally:
            self._uses[name] -= 1
            if not self._uses[name]:
                del self._uses[name], os.environ[name]


class Engine:
    """Runs rollouts while it is open (`async with engine.open()`); many at once."""

    def __init__(self, config: EnvConfig) -> None:
        self._env = load_environment(config)
        self._keys = LentKeys()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Engine"]:
        """Hold what rollouts share.

        Raises:
            SandboxError: the confined local sandbox is asked for and does not work here.
        """
        async with self._env.serving():
            yield self

    async def rollout(self, spec: RolloutSpec, endpoint: Endpoint) -> RolloutResult:
        """Run one rollout to its end. Its failures are in the result; cancelling it removes its sandbox."""
        started = time.monotonic()
        with self._keys.lend(endpoint.api_key) as variable:
            context = ModelContext(endpoint.model, client_of(spec, endpoint, variable), sampling_of(spec, endpoint))
            task: Task[Any, Any, Any] = RolloutTask.of(spec)
            (slot,) = self._env.slots(task)
            episode = await self._env.run_slot(slot, context)
        return result_of(spec, episode, time.monotonic() - started)
