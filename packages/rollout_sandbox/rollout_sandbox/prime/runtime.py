"""Our Prime runtime, which other environments name by `--env.agent.runtime.type custom` and its import path.

The private parts of verifiers' own that it stands on are here and nowhere else: `_client`.

Invariant: whoever asks the platform for a sandbox deletes it, also when the answer was lost, the caller is cancelled or
the event loop is gone. Only a process that is killed, or that SIGTERM ends before any handler of its own, leaves one,
which its labels find and its lifetime ends.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import PrimeConfig, ProgramResult, RuntimeProcess

from rollout_sandbox.compat import CustomRuntimeConfig, PrimeBackend, Runtime
from rollout_sandbox.prime.commands import agent_can_cause, run_command
from rollout_sandbox.prime.connections import prepare
from rollout_sandbox.prime.errors import SDK_ERRORS, TOO_MANY, classified, http_status, repeated
from rollout_sandbox.prime.ownership import OwnedClient, Ownership
from rollout_sandbox.prime.turns import PrimeLimits, StartRecord, taken_turn
from rollout_sandbox.provisioning import provisioned

logger = logging.getLogger("verifiers.v1.rollout_sandbox.prime")

_PAUSES_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Between requests for a sandbox that was refused for now; the SDK has waited 10 and 30 s by itself before each."""
_MINUTE_S, _TIMES, _ANSWER_S = 60.0, 3, 30
"""A sandbox is asked for something so many times within the time after which it counts as idle."""
_SPARE_S = 900.0
"""For its start, for cleanup hooks and for its deletion."""


class PrimeSandboxBackend(PrimeBackend):
    """One Prime sandbox, from `start` to `stop`.

    Args:
        lifetime: minutes after which the platform ends it; -1 is never.
        record: of its start, with the limits of this process.
        name: for messages and labels; random and unique by default.
    """

    _owned_client: OwnedClient | None = None

    def __init__(
        self, config: PrimeConfig, lifetime: int, record: StartRecord | None = None, name: str | None = None
    ) -> None:
        super().__init__(config.model_copy(update={"creates_per_min": None}), name)  # it has had its turn
        self.record = StartRecord() if record is None else record
        self.ownership = Ownership(self.name, lifetime)
        self._keeping_alive: asyncio.Task[None] | None = None

    @property  # type: ignore[override,unused-ignore]  # a plain attribute there
    def _client(self) -> OwnedClient | None:
        """Where verifiers keeps the SDK's client, which all runtimes of an event loop share."""
        return self._owned_client

    @_client.setter
    def _client(self, client: Any) -> None:
        self._owned_client = None
        if client is not None:
            prepare(client, self.record.limits.max_connections)
            self._owned_client = OwnedClient(client, self.ownership, self.record)

    @property
    def client(self) -> OwnedClient:
        if self._client is None:
            raise SandboxError(f"prime runtime {self.name} is not up")
        return self._client

    @property
    def sandbox_id(self) -> str:
        """What the platform calls it."""
        if self.info.id is None:
            raise SandboxError(f"prime runtime {self.name} is not up")
        return str(self.info.id)

    @property
    def workdir(self) -> str:
        return str(self.config.workdir)

    async def start(self) -> None:
        """Have a sandbox and wait until it is up; refused for now (429), it is asked for again for a while."""
        deadline = time.monotonic() + self.record.limits.creation_patience
        for pause in itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1])):
            try:
                async with classified(starting=True):
                    await super().start()
            except SandboxError as error:
                wait = pause * random.uniform(0.5, 1.5)  # so that not all of a run come back at once
                if self.info.id is not None or http_status(error) != TOO_MANY or time.monotonic() + wait > deadline:
                    raise
            else:
                self.record.seconds["ready"] = time.monotonic() - self.record.created_at
                if (idle := self.ownership.idle_minutes) is not None:
                    self._keeping_alive = asyncio.create_task(self._keep_alive(idle * _MINUTE_S / _TIMES))
                return
            await super().teardown()  # gives the client back
            await asyncio.sleep(wait)

    def bind(self, *, env: Mapping[str, str] | None = None) -> "PrimeSandbox":
        return PrimeSandbox(self, env=self.env if env is None else env)

    async def _keep_alive(self, pause: float) -> None:
        """Run a command that does nothing, again and again: idle time ends what a killed process left, and no agent
        whose one command is silent for long."""
        while True:
            await asyncio.sleep(pause)
            try:
                await self.client.execute_command(self.sandbox_id, "true", timeout=_ANSWER_S)
            except SDK_ERRORS as error:  # what becomes of the sandbox, the rollout's own commands say
                logger.info("prime sandbox %s could not be kept alive: %s", self.sandbox_id, error)

    async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a command to its end; cancelled, it is killed first."""
        async with classified():
            return await run_command(self, argv, runtime.process_env(env), runtime.user)

    async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
        async with classified():
            opened: RuntimeProcess = await super().exec(runtime, argv, env)
        for name in ("kill", "terminate"):
            setattr(opened, name, _signalling(getattr(opened, name)))
        return opened

    async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
        enforce = super().prepare_execution
        async with classified():
            await repeated(lambda: enforce(routes, network))

    async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
        async with classified():
            await super().run_background(runtime, argv, env, log)

    async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
        once = super().read
        async with classified():
            content: bytes = await repeated(lambda: once(runtime, path, max_bytes))
            return content

    async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
        async with classified():
            await super().write(runtime, path, data)

    async def teardown(self) -> None:
        """Delete the sandbox, one also whose id nobody was told; idempotent."""
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()
        try:
            if self.ownership.lost():
                deleted = await asyncio.to_thread(self.ownership.find_and_delete)
                self.ownership.look_for_late(deleted=deleted)
        finally:
            await super().teardown()

    def cleanup(self) -> None:
        """Nothing: as the process ends, `ownership` deletes what all runtimes have left, at once."""


class PrimeSandbox(Runtime):
    """A view of a Prime sandbox, which knows whose doing a failure of its commands can be."""

    def agent_can_cause(self, error: SandboxError) -> bool:
        return agent_can_cause(error)


class OwnedPrimeConfig(PrimeConfig, CustomRuntimeConfig):
    """verifiers' options of a Prime sandbox, and ours."""

    type: Literal["custom"] = "custom"  # type: ignore[assignment]  # "prime" there
    import_path: str = "rollout_sandbox.OwnedPrimeBackend"
    """What makes it."""
    lifetime_minutes: int = 24 * 60
    """Minutes after which the platform ends it, should this process be killed; -1 is never."""
    limits: PrimeLimits = PrimeLimits()
    """What one process may ask of Prime at once; `max_sandboxes` holds in environments of ours only."""


class OwnedPrimeBackend(PrimeSandboxBackend):
    """A Prime sandbox that is deleted whatever happens, for any environment of verifiers after 0.4.0."""

    config_class = OwnedPrimeConfig

    def __init__(self, config: OwnedPrimeConfig, name: str | None = None) -> None:
        said = {field: getattr(config, field) for field in PrimeConfig.model_fields if field != "type"}
        self._asked = PrimeConfig(**said)
        super().__init__(self._asked, config.lifetime_minutes, StartRecord(config.limits), name)
        self._limits = config.limits

    async def start(self) -> None:
        """Wait for its turn, have a sandbox and wait until it is up."""
        self.record = await taken_turn(self._asked, None)
        self.record.limits = self._limits
        await super().start()


def _signalling(send: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """The same signal to a process, refused as an error of its kind."""

    async def told() -> None:
        async with classified():
            try:
                await send()
            except SDK_ERRORS as error:
                raise SandboxError(f"a process could not be signalled: {error}") from error

    return told


@contextlib.asynccontextmanager
async def provision_prime(
    config: PrimeConfig, lifetime: int, env: Mapping[str, str] | None = None, record: StartRecord | None = None
) -> AsyncIterator[PrimeSandbox]:
    """Have a Prime sandbox and delete it on exit, whatever happens; `record` is the turn of its rollout, the rest as of
    `PrimeSandboxBackend`."""
    record = await taken_turn(config, record)
    async with provisioned(PrimeSandboxBackend(config, lifetime, record), env) as box:
        yield box


def lifetime_minutes(stages: Sequence[float | None]) -> int:
    """Whole minutes, or -1, Prime's word for no limit, when a stage may take for ever.

    Args:
        stages: seconds that each stage of a rollout may take. None is a stage without a limit: an hour is added for
            it. `inf` is one that was given no limit on purpose.
    """
    seconds = _SPARE_S + sum(3600.0 if stage is None else stage for stage in stages)
    return math.ceil(seconds / 60) if math.isfinite(seconds) else -1
