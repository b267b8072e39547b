"""Our Prime runtime, which other environments name by `--env.agent.runtime.type custom` and its import path.

Whoever asks the platform for a sandbox deletes it, also when the answer was lost, the caller is cancelled or the event
loop is gone (`ownership`). A command's output and exit code are in files of the sandbox before they are streamed, so
that nothing is lost with a connection; when `run` is cancelled or fails, what it started was killed before that goes
on. The private part of verifiers' own that this stands on is `_client`.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import random
import shlex
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from prime_sandboxes import APIError, SandboxNotRunningError
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import PrimeConfig, ProgramResult, RuntimeProcess
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.compat import CustomRuntimeConfig, PrimeBackend, Runtime
from rollout_sandbox.errors import (
    SandboxAccessError,
    SandboxDiskError,
    SandboxEndedError,
    SandboxGatewayError,
    SandboxMemoryError,
    SandboxQuotaError,
)
from rollout_sandbox.exchange import COMMAND_ID_VARIABLE, OUTPUT_BYTES, PRINTED_BYTES, command_end
from rollout_sandbox.interface import SandboxAbilities
from rollout_sandbox.prime.ownership import OwnedClient, Ownership
from rollout_sandbox.prime.queue import PrimeLimits, StartRecord, prepare, waited_place
from rollout_sandbox.prime.sdk_errors import (
    NO_ACCESS,
    OVER,
    SDK_ERRORS,
    TOO_MANY,
    chain,
    classified,
    http_status,
    kind_of,
    no_access,
    repeated,
)
from rollout_sandbox.programs import program_argv
from rollout_sandbox.provisioning import provisioned

logger = logging.getLogger("verifiers.v1.rollout_sandbox.prime")

_KILLED = 137
_NOT_RUN = (126, 127)
"""What a shell, or whatever starts commands for a platform, says of a program that it cannot run or find."""
_LINE_BYTES = 120_000
"""Linux takes no argument beyond 128 KiB, and the SDK makes one of a whole command."""
_WAIT_S = 20
_SILENCE_S = 120.0
"""How long a sandbox may not be reached before its rollout is given up."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0)
_END_TIMEOUT_S = 20


class _UnclearEndError(Exception):
    """The stream did not say how the command ended, though the shell around it ended with `exit_code`."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class _KilledError(Exception):
    """Somebody inside kept the shell around the command from telling its end; what it started is to be killed."""

    def __init__(self, message: str, exit_code: int = _KILLED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def run_command(
    place: "PrimeSandboxBackend", argv: Sequence[str], env: dict[str, str], user: str | None
) -> ProgramResult:
    """Run a command to its end. A command whose shell somebody killed inside, or wrote more into than it says, has
    ended so, with what it started: data, as any end of a program."""
    name = uuid.uuid4().hex
    env = {**env, COMMAND_ID_VARIABLE: name}
    process = None
    try:
        try:
            process = await _opened(place, name, argv, env, user)
            return await _printed(process)
        except (*SDK_ERRORS, _UnclearEndError) as error:
            logger.info("prime sandbox %s: the stream of a command was lost: %s", place.sandbox_id, error)
            return await _found_again(place, name, user, error, started=process is not None)
    except _KilledError as killed:
        await run_shielded(_end(place, f"{COMMAND_ID_VARIABLE}={name}"))
        return ProgramResult(killed.exit_code, "", f"{killed}\n")
    except BaseException:  # cancelled, too: nobody waits for the command any more
        await run_shielded(_end(place, f"{COMMAND_ID_VARIABLE}={name}"))
        raise


async def _opened(
    place: "PrimeSandboxBackend", name: str, words: Sequence[str], env: dict[str, str], user: str | None
) -> Any:
    """Start `remote_run.sh`, which runs the command `name`, or waits for its end."""
    directory = f"/tmp/.vf-run-{name}"
    command = shlex.join(program_argv("remote_run.sh", directory, str(OUTPUT_BYTES), *words))
    if len(command.encode()) > _LINE_BYTES:
        script = f"{directory}.sh"
        await place.client.upload_bytes(place.sandbox_id, script, command.encode(), filename="command.sh")
        command = f"sh {script}"
    return await place.client.open_process(place.sandbox_id, command, place.workdir, env, user)


async def _printed(process: Any) -> ProgramResult:
    """Return what `remote_run.sh` prints. An `_UnclearEndError`: a part of it is missing, or is not what that says; a
    `_KilledError`: it is more than that prints."""
    async with contextlib.aclosing(process):
        printed = await _received(process)
        code = await process.wait()
    if code:
        raise _UnclearEndError(f"exit code {code}", code)
    try:
        return command_end(printed)
    except ValueError as error:
        raise _UnclearEndError(str(error), code) from error


async def _received(process: Any) -> bytes:
    """The standard output of a process; too much of that, or of its standard error, is a `_KilledError`."""
    received, room = bytearray(), PRINTED_BYTES

    async def take(stream: Any, kept: bytearray) -> None:
        nonlocal room
        async for chunk in stream:
            room -= len(chunk)
            if room < 0:
                process.stdout.close()  # or the SDK would keep what comes until the process has ended
                process.stderr.close()
                raise _KilledError("a program wrote without end to the shell around the command")
            kept += chunk

    await asyncio.gather(take(process.stdout, received), take(process.stderr, bytearray()))
    return bytes(received)


async def _found_again(
    place: "PrimeSandboxBackend", name: str, user: str | None, lost: Exception, *, started: bool
) -> ProgramResult:
    """Ask the sandbox for the end of a command, whose stream was `lost`, again and again; each time it waits a while
    for it. What the way kept from being `started`, and the sandbox knows nothing of, failed by the way."""
    loop = asyncio.get_running_loop()
    silent_since, tries, last = loop.time(), 0, lost
    while True:
        asked = loop.time()
        if kind_of(last) is SandboxAccessError:
            raise no_access(last) from last
        try:
            return await _printed(await _opened(place, name, [f"wait={_WAIT_S}"], {}, user))
        except _UnclearEndError as error:
            if str(error) == "running":
                silent_since, tries = loop.time(), 0
                await asyncio.sleep(asked + _WAIT_S - silent_since)  # nothing, unless that was not our program's word
                continue
            _require_findable(place, error, lost, started=started)
            last = error
        except SDK_ERRORS as error:
            last = error
            await _require_living(place, last)
        if loop.time() - silent_since > _SILENCE_S:
            unclear = isinstance(last, _UnclearEndError)  # which the way here brings about for moments only
            raise (SandboxEndedError if unclear else SandboxGatewayError)(
                f"prime sandbox {place.sandbox_id} said nothing of a command's end for {_SILENCE_S:g} s: {last}"
            ) from last
        await asyncio.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1


def _require_findable(place: "PrimeSandboxBackend", error: _UnclearEndError, lost: Exception, *, started: bool) -> None:
    """Give up on a command of which the sandbox knows nothing: a `_KilledError` if the shell around it had ended, and
    nobody wrote the command's end, else a `SandboxError`."""
    if str(error) == "lost":
        if isinstance(lost, _UnclearEndError):
            raise _KilledError("the shell around the command was killed", lost.exit_code or _KILLED) from lost
        if not started and kind_of(lost) is SandboxGatewayError:
            raise SandboxGatewayError(f"prime sandbox {place.sandbox_id} could not be told a command: {lost}") from lost
        raise SandboxEndedError(f"prime sandbox {place.sandbox_id} has lost a command: {lost}") from lost
    if isinstance(lost, _UnclearEndError) and lost.exit_code in _NOT_RUN and error.exit_code in _NOT_RUN:
        raise SandboxEndedError(
            f"prime sandbox {place.sandbox_id} cannot run sh ({error}): its image has none, or lost it"
        ) from error


async def _require_living(place: "PrimeSandboxBackend", error: Exception) -> None:
    """Ask what became of a sandbox that does not answer; a `SandboxError` if it is over, or the key is not let in."""
    try:
        sandbox = await place.client.get(place.sandbox_id)
    except SDK_ERRORS as refusal:
        # By its own status: behind it stands how the command's stream broke.
        if kind_of(refusal) is SandboxAccessError or http_status(refusal) in NO_ACCESS:
            raise no_access(refusal) from error
        return
    if sandbox.status in OVER:
        reason = sandbox.error_type or sandbox.status
        kind = SandboxMemoryError if reason == "OOM_KILLED" else SandboxEndedError
        raise kind(f"prime sandbox {place.sandbox_id} ended ({reason}) while a command ran") from error


async def _end(place: "PrimeSandboxBackend", mark: str) -> None:
    """Kill what a command started, as the default user. That it could not is logged: the sandbox is deleted soon."""
    command = shlex.join(program_argv("remote_end.sh", mark))
    try:
        async with asyncio.timeout(_END_TIMEOUT_S):
            code = await repeated(lambda: _code_of(place, command))
    except (*SDK_ERRORS, SandboxError, _KilledError) as error:
        logger.warning("prime sandbox %s: a command could not be ended: %s", place.sandbox_id, error)
        return
    if code:
        logger.warning("prime sandbox %s: a command could not be ended: some processes live on", place.sandbox_id)


async def _code_of(place: "PrimeSandboxBackend", command: str) -> int:
    process = await place.client.open_process(place.sandbox_id, command)
    async with contextlib.aclosing(process):
        await _received(process)
        code: int = await process.wait()
    return code


_CREATION_PAUSES_S = (5.0, 10.0, 20.0, 40.0, 60.0)
"""Between requests for a sandbox that was refused for now; the SDK has waited 10 and 30 s by itself before each."""
_MINUTE_S, _TIMES, _ANSWER_S = 60.0, 3, 30
"""A sandbox is asked for something so many times within the time after which it counts as idle."""
_SPARE_S = 900.0
"""For its start, for cleanup hooks and for its deletion."""


class PrimeSandboxBackend(PrimeBackend):
    """One Prime sandbox, from `start` to `stop`, which the platform ends after `lifetime` minutes; -1 is never."""

    _owned_client: OwnedClient | None = None

    def __init__(
        self, config: PrimeConfig, lifetime: int, record: StartRecord | None = None, name: str | None = None
    ) -> None:
        super().__init__(config.model_copy(update={"creates_per_min": None}), name)  # it has waited for that already
        self.record = StartRecord() if record is None else record
        self.ownership = Ownership(self.name, lifetime)
        self._keeping_alive: asyncio.Task[None] | None = None

    @property  # type: ignore[override,unused-ignore]  # a plain attribute there
    def _client(self) -> OwnedClient | None:
        """Return where verifiers keeps the SDK's client, which all runtimes of an event loop share."""
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
        if self.info.id is None:
            raise SandboxError(f"prime runtime {self.name} is not up")
        return str(self.info.id)

    @property
    def workdir(self) -> str:
        return str(self.config.workdir)

    async def start(self) -> None:
        """Have a sandbox and wait until it is up; refused for now (429), it is asked for again for a while."""
        deadline = time.monotonic() + self.record.limits.creation_patience
        for pause in itertools.chain(_CREATION_PAUSES_S, itertools.repeat(_CREATION_PAUSES_S[-1])):
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
        """Run a command that does nothing, again and again: no agent whose one command is silent for long is idle."""
        while True:
            await asyncio.sleep(pause)
            try:
                await self.client.execute_command(self.sandbox_id, "true", timeout=_ANSWER_S)
            except SDK_ERRORS as error:  # what becomes of the sandbox, the rollout's own commands say
                logger.info("prime sandbox %s could not be kept alive: %s", self.sandbox_id, error)

    @classified()
    async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
        return await run_command(self, argv, runtime.process_env(env), runtime.user)

    @classified()
    async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
        return _PrimeProcess(await super().exec(runtime, argv, env))

    @classified()
    async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
        enforce = super().prepare_execution
        await repeated(lambda: enforce(routes, network))

    @classified()
    async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
        await super().run_background(runtime, argv, env, log)

    @classified()
    async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
        once = super().read
        content: bytes = await repeated(lambda: once(runtime, path, max_bytes))
        return content

    @classified()
    async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
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


class PrimeSandbox(SandboxAbilities, Runtime):
    """A view of a Prime sandbox."""

    def agent_can_cause(self, error: SandboxError) -> bool:
        """Whether neither the platform nor the way there says it."""
        agents = (_UnclearEndError, SandboxMemoryError, SandboxDiskError)
        others = (SandboxGatewayError, SandboxAccessError, SandboxQuotaError, APIError, SandboxNotRunningError)
        for one in chain(error):
            if isinstance(one, (*agents, *others)):
                return isinstance(one, agents)
        return True


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
        self.record = await waited_place(self._asked, None)
        self.record.limits = self._limits
        await super().start()


class _PrimeProcess(RuntimeProcess):
    """A process; a refusal to send it a signal is an error of its kind."""

    def __init__(self, inner: RuntimeProcess) -> None:
        self._inner = inner
        self.stdout, self.stderr = inner.stdout, inner.stderr

    async def write(self, data: bytes) -> None:
        await self._inner.write(data)

    async def wait(self) -> int:
        return await self._inner.wait()

    async def poll(self) -> int | None:
        return await self._inner.poll()

    async def terminate(self) -> None:
        await self._signal(self._inner.terminate)

    async def kill(self) -> None:
        await self._signal(self._inner.kill)

    @classified()
    async def _signal(self, send: Callable[[], Awaitable[None]]) -> None:
        try:
            await send()
        except SDK_ERRORS as error:
            raise SandboxError(f"a process could not be signalled: {error}") from error


@contextlib.asynccontextmanager
async def provision_prime(
    config: PrimeConfig, lifetime: int, env: Mapping[str, str] | None = None, record: StartRecord | None = None
) -> AsyncIterator[PrimeSandbox]:
    """Have a Prime sandbox and delete it on exit, whatever happens; `record` is of its rollout's start."""
    record = await waited_place(config, record)
    async with provisioned(PrimeSandboxBackend(config, lifetime, record), env) as box:
        yield box


def lifetime_minutes(stages: Sequence[float | None]) -> int:
    """Whole minutes, or -1, Prime's word for no limit, of `stages`, each with the seconds that it may take; None, for a
    stage without a limit, adds an hour, and `inf` is one that was given no limit on purpose."""
    seconds = _SPARE_S + sum(3600.0 if stage is None else stage for stage in stages)
    return math.ceil(seconds / 60) if math.isfinite(seconds) else -1
