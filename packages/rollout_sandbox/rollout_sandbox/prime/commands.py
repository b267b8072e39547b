"""Commands of one Prime sandbox: their end is streamed, and looked for again when the stream is lost.

Invariant: a command's output and exit code are in files of the sandbox before they are streamed, so nothing is lost
with a connection; and when `run` is cancelled or fails, what it started was killed before that goes on.
"""

import asyncio
import contextlib
import logging
import re
import shlex
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from prime_sandboxes import APIError, SandboxNotRunningError
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.prime import errors
from rollout_sandbox.prime.errors import SDK_ERRORS, SandboxAccessError, SandboxEndedError, SandboxGatewayError, kind_of
from rollout_sandbox.programs import program_argv

logger = logging.getLogger("verifiers.v1.rollout_sandbox.prime")

MARK = "OPENCODE_ENV_COMMAND"
OUTPUT_BYTES = 10 << 20
"""The end of each stream that is kept; verifiers keeps as much."""
_ENDED = re.compile(rb"ended (\d{1,3}) (\d{1,8}) (\d{1,8})")
_HEAD_BYTES = 200
"""More than any line that says how a command ended."""
_KILLED = 137
_NOT_STARTED = 125
_NOT_RUN = (126, 127)
"""What a shell, or whatever starts commands for a platform, says of a program that it cannot run or find."""
_LINE_BYTES = 120_000
"""Linux takes no argument beyond 128 KiB, and the SDK makes one of a whole command."""
_WAIT_S = 20
_SILENCE_S = 120.0
"""How long a sandbox may not be reached before its rollout is given up."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0)
_END_TIMEOUT_S = 20


class Place(Protocol):
    """The sandbox that commands run in."""

    @property
    def client(self) -> Any: ...

    @property
    def sandbox_id(self) -> str: ...

    @property
    def workdir(self) -> str: ...


class UnclearEndError(Exception):
    """The stream did not say how the command ended, though the shell around it ended with `exit_code`."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class KilledError(Exception):
    """Somebody inside kept the shell around the command from telling its end; what it started is to be killed."""

    def __init__(self, message: str, exit_code: int = _KILLED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def agent_can_cause(error: SandboxError) -> bool:
    """Whether programs inside can have made a command fail so: neither the platform nor the way there says it."""
    agents = (UnclearEndError, errors.SandboxMemoryError, errors.SandboxDiskError)
    others = (SandboxGatewayError, SandboxAccessError, errors.SandboxQuotaError, APIError, SandboxNotRunningError)
    for one in errors.chain(error):
        if isinstance(one, (*agents, *others)):
            return isinstance(one, agents)
    return True


async def run_command(place: Place, argv: Sequence[str], env: dict[str, str], user: str | None) -> ProgramResult:
    """Run a command to its end. A command whose shell somebody killed inside, or wrote more into than it says, has
    ended so, with what it started: data, as any end of a program."""
    name = uuid.uuid4().hex
    env = {**env, MARK: name}
    process = None
    try:
        try:
            process = await _opened(place, name, argv, env, user)
            return await _printed(process)
        except (*SDK_ERRORS, UnclearEndError) as error:
            logger.info("prime sandbox %s: the stream of a command was lost: %s", place.sandbox_id, error)
            return await _found_again(place, name, user, error, started=process is not None)
    except KilledError as killed:
        await run_shielded(_end(place, f"{MARK}={name}"))
        return ProgramResult(killed.exit_code, "", f"{killed}\n")
    except BaseException:  # cancelled, too: nobody waits for the command any more
        await run_shielded(_end(place, f"{MARK}={name}"))
        raise


async def _opened(place: Place, name: str, words: Sequence[str], env: dict[str, str], user: str | None) -> Any:
    """The process of a `remote_run.sh`, which runs the command `name`, or waits for its end.

    Raises:
        APIError: it could not be started, as far as anybody here knows.
    """
    directory = f"/tmp/.vf-run-{name}"
    command = shlex.join(program_argv("remote_run.sh", directory, str(OUTPUT_BYTES), *words))
    if len(command.encode()) > _LINE_BYTES:
        script = f"{directory}.sh"
        await place.client.upload_bytes(place.sandbox_id, script, command.encode(), filename="command.sh")
        command = f"sh {script}"
    return await place.client.open_process(place.sandbox_id, command, place.workdir, env, user)


async def _printed(process: Any) -> ProgramResult:
    """What `remote_run.sh` prints.

    Raises:
        APIError: the stream broke.
        UnclearEndError: a part of it is missing, or is not what `remote_run.sh` says.
        KilledError: it is more than `remote_run.sh` prints.
    """
    async with contextlib.aclosing(process):
        printed = await _received(process)
        code = await process.wait()
    head, _, rest = printed.partition(b"\n")
    if code:
        raise UnclearEndError(f"exit code {code}", code)
    if head == b"full":
        raise KilledError("the command was not run: no space is left on the sandbox's disk", _NOT_STARTED)
    if (ended := _ENDED.fullmatch(head)) is None:
        raise UnclearEndError(printed[:_HEAD_BYTES].decode(errors="replace").rstrip("\n") or "no word of it", code)
    exit_code, out, err = map(int, ended.groups())
    if len(rest) != out + err:
        raise UnclearEndError(f"{len(rest)} of {out + err} bytes of output", code)
    return ProgramResult(exit_code, rest[:out].decode(errors="replace"), rest[out:].decode(errors="replace"))


async def _received(process: Any) -> bytes:
    """The standard output of a process; its standard error is dropped. Any program inside may write to either: too much
    is a `KilledError`."""
    received, room = bytearray(), 2 * OUTPUT_BYTES + _HEAD_BYTES

    async def take(stream: Any, kept: bytearray) -> None:
        nonlocal room
        async for chunk in stream:
            room -= len(chunk)
            if room < 0:
                process.stdout.close()  # or the SDK would keep what comes until the process has ended
                process.stderr.close()
                raise KilledError("a program wrote without end to the shell around the command")
            kept += chunk

    await asyncio.gather(take(process.stdout, received), take(process.stderr, bytearray()))
    return bytes(received)


async def _found_again(place: Place, name: str, user: str | None, lost: Exception, *, started: bool) -> ProgramResult:
    """Ask the sandbox for the end of a command, again and again; each time it waits a while for it.

    Args:
        lost: how the stream of the command ended.
        started: whether that had begun. What the way here kept from starting, and the sandbox knows nothing of, failed
            by the way.

    Raises:
        KilledError: the shell around it had ended, and nobody wrote the command's end.
        SandboxError: the sandbox is gone, could not be reached for long, says what nobody understands, or has lost the
            command.
    """
    loop = asyncio.get_running_loop()
    silent_since, tries, last = loop.time(), 0, lost
    while True:
        asked = loop.time()
        if kind_of(last) is SandboxAccessError:
            raise errors.no_access(last) from last
        try:
            return await _printed(await _opened(place, name, [f"wait={_WAIT_S}"], {}, user))
        except UnclearEndError as error:
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
            unclear = isinstance(last, UnclearEndError)  # which the way here brings about for moments only
            raise (SandboxEndedError if unclear else SandboxGatewayError)(
                f"prime sandbox {place.sandbox_id} said nothing of a command's end for {_SILENCE_S:g} s: {last}"
            ) from last
        await asyncio.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1


def _require_findable(place: Place, error: UnclearEndError, lost: Exception, *, started: bool) -> None:
    """Give up on a command of which the sandbox knows nothing; arguments as of `_found_again`.

    Raises:
        KilledError: the shell around it had ended, and nobody wrote the command's end.
        SandboxError: the sandbox has lost it, never heard of it, or cannot run our program.
    """
    if str(error) == "lost":
        if isinstance(lost, UnclearEndError):
            raise KilledError("the shell around the command was killed", lost.exit_code or _KILLED) from lost
        if not started and kind_of(lost) is SandboxGatewayError:
            raise SandboxGatewayError(f"prime sandbox {place.sandbox_id} could not be told a command: {lost}") from lost
        raise SandboxEndedError(f"prime sandbox {place.sandbox_id} has lost a command: {lost}") from lost
    if isinstance(lost, UnclearEndError) and lost.exit_code in _NOT_RUN and error.exit_code in _NOT_RUN:
        raise SandboxEndedError(
            f"prime sandbox {place.sandbox_id} cannot run sh ({error}): its image has none, or lost it"
        ) from error


async def _require_living(place: Place, error: Exception) -> None:
    """Ask the platform what became of a sandbox that does not answer; a `SandboxError` if it is over, or the key does
    not let in."""
    try:
        sandbox = await place.client.get(place.sandbox_id)
    except SDK_ERRORS as refusal:
        # By its own status: behind it stands how the command's stream broke.
        if kind_of(refusal) is SandboxAccessError or errors.http_status(refusal) in errors.NO_ACCESS:
            raise errors.no_access(refusal) from error
        return
    if sandbox.status in errors.OVER:
        reason = sandbox.error_type or sandbox.status
        kind = errors.SandboxMemoryError if reason == "OOM_KILLED" else SandboxEndedError
        raise kind(f"prime sandbox {place.sandbox_id} ended ({reason}) while a command ran") from error


async def _end(place: Place, mark: str) -> None:
    """Kill what a command started, as the default user. That it could not is logged: the sandbox is deleted soon."""
    command = shlex.join(program_argv("remote_end.sh", mark))
    try:
        async with asyncio.timeout(_END_TIMEOUT_S):
            code = await errors.repeated(lambda: _code_of(place, command))
    except (*SDK_ERRORS, SandboxError, KilledError) as error:
        logger.warning("prime sandbox %s: a command could not be ended: %s", place.sandbox_id, error)
        return
    if code:
        logger.warning("prime sandbox %s: a command could not be ended: some processes live on", place.sandbox_id)


async def _code_of(place: Place, command: str) -> int:
    process = await place.client.open_process(place.sandbox_id, command)
    async with contextlib.aclosing(process):
        await _received(process)
        code: int = await process.wait()
    return code
