"""Commands of one Prime sandbox: their end is streamed, and looked for again when the stream is lost.

Invariant: a command's output and exit code are in files of the sandbox before they are streamed, so nothing is lost
with a connection; and when `run` is cancelled or fails, what it started was killed before that goes on.
"""

import asyncio
import contextlib
import logging
import shlex
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

from prime_sandboxes import APIError
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.aio import run_shielded

from opencode_env.cli_agent.prime.errors import SandboxGatewayError, ended_by
from opencode_env.cli_agent.programs import program

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.prime")

MARK = "OPENCODE_ENV_COMMAND"
OUTPUT_BYTES = 10 << 20
"""The end of each stream that is kept; verifiers keeps as much."""
_LINE_BYTES = 120_000
"""Linux takes no argument beyond 128 KiB, and the SDK makes one of a whole command."""
_WAIT_S = 20
_SILENCE_S = 120.0
"""How long a sandbox may not be reached before its rollout is given up."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0)
_END_TIMEOUT_S = 20
_OVER = ("TERMINATED", "ERROR", "TIMEOUT")
_ERRORS = (APIError, RuntimeError, OSError)
"""What the SDK raises: its errors of states and timeouts are `RuntimeError`s."""


class Place(Protocol):
    """The sandbox that commands run in."""

    @property
    def client(self) -> Any: ...

    @property
    def sandbox_id(self) -> str: ...

    @property
    def workdir(self) -> str: ...


class UnclearEndError(Exception):
    """The stream did not say how the command ended; `exit_code` is that of the shell around it, if it ended."""

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def run_command(place: Place, argv: Sequence[str], env: dict[str, str], user: str | None) -> ProgramResult:
    """Run a command to its end.

    Raises:
        SandboxError: the sandbox is gone, cannot be reached, or has lost the command.
    """
    name = uuid.uuid4().hex
    env = {**env, MARK: name}
    try:
        try:
            return await _printed(place, [_directory(name), str(OUTPUT_BYTES), *argv], env, user)
        except (*_ERRORS, UnclearEndError) as error:
            logger.info("prime sandbox %s: the stream of a command was lost: %s", place.sandbox_id, error)
            return await _found_again(place, name, user, error)
    except BaseException:  # cancelled, too: nobody waits for the command any more
        await run_shielded(_end(place, f"{MARK}={name}"))
        raise


def _directory(name: str) -> str:
    return f"/tmp/.vf-run-{name}"


async def _printed(place: Place, arguments: Sequence[str], env: dict[str, str], user: str | None) -> ProgramResult:
    """What `remote_run.sh` prints.

    Raises:
        APIError: the stream broke, or never was there.
        UnclearEndError: a part of it is missing.
    """
    command = shlex.join(["sh", "-c", program("remote_run.sh"), "remote_run", *arguments])
    if len(command.encode()) > _LINE_BYTES:
        script = f"{arguments[0]}.sh"
        await place.client.upload_bytes(place.sandbox_id, script, command.encode(), filename="command.sh")
        command = f"sh {script}"
    process = await place.client.open_process(place.sandbox_id, command, place.workdir, env, user)
    async with contextlib.aclosing(process):
        printed = b"".join([chunk async for chunk in process.stdout])
        code = await process.wait()
    head, _, rest = printed.partition(b"\n")
    words = head.split()
    if len(words) != 4 or words[0] != b"ended":
        raise UnclearEndError(words[0].decode(errors="replace") if words else f"exit code {code}, no word of it", code)
    exit_code, out, err = (int(word) for word in words[1:])
    if len(rest) != out + err:
        raise UnclearEndError(f"{len(rest)} of {out + err} bytes of output")
    return ProgramResult(exit_code, rest[:out].decode(errors="replace"), rest[out:].decode(errors="replace"))


async def _found_again(place: Place, name: str, user: str | None, lost: Exception) -> ProgramResult:
    """Ask the sandbox for the end of a command, again and again; each time it waits a while for it.

    A command whose shell somebody killed inside has ended so, with what it started: data, as any end of a program.

    Raises:
        SandboxError: the sandbox is gone, could not be reached for long, or has lost the command.
    """
    loop = asyncio.get_running_loop()
    silent_since, tries = loop.time(), 0
    while True:
        try:
            return await _printed(place, [_directory(name), str(OUTPUT_BYTES), f"wait={_WAIT_S}"], {}, user)
        except UnclearEndError as error:
            if str(error) == "lost":
                if isinstance(lost, UnclearEndError) and lost.exit_code:
                    await _end(place, f"{MARK}={name}")
                    return ProgramResult(lost.exit_code, "", "the shell around the command was killed\n")
                raise SandboxError(f"prime sandbox {place.sandbox_id} has lost a command: {lost}") from lost
            if str(error) == "running":
                silent_since, tries = loop.time(), 0
                continue
            lost = error
        except _ERRORS as error:
            lost = error
            await _require_living(place, error)
        if loop.time() - silent_since > _SILENCE_S:
            raise SandboxGatewayError(
                f"prime sandbox {place.sandbox_id} could not be reached for {_SILENCE_S:g} s: {lost}"
            ) from lost
        await asyncio.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1


async def _require_living(place: Place, error: Exception) -> None:
    """Ask the platform what became of a sandbox that does not answer.

    Raises:
        SandboxError: it is over.
    """
    try:
        sandbox = await place.client.get(place.sandbox_id)
    except APIError:
        return
    if sandbox.status in _OVER:
        reason = sandbox.error_type or sandbox.status
        raise ended_by(reason)(f"prime sandbox {place.sandbox_id} ended ({reason}) while a command ran") from error


async def _end(place: Place, mark: str) -> None:
    """Kill what a command started, as the default user. That it could not is logged: the sandbox is deleted soon."""
    command = shlex.join(["sh", "-c", program("remote_end.sh"), "remote_end", mark])
    try:
        done = await place.client.execute_command(place.sandbox_id, command, timeout=_END_TIMEOUT_S)
    except (*_ERRORS, SandboxError) as error:
        logger.warning("prime sandbox %s: a command could not be ended: %s", place.sandbox_id, error)
        return
    if done.exit_code:
        logger.warning("prime sandbox %s: a command could not be ended: %s", place.sandbox_id, done.stderr.strip())
