"""Runs a program of ours in the sandbox: for a limited time, with its failure told from the sandbox's end.

Invariant: it returns only what an accepted exit code says. Everything else is an error that begins with what failed,
and it is a `vf.SandboxError` whenever the sandbox itself is gone.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import verifiers.v1 as vf

from agent_sandbox.toolbox.alive import is_alive
from agent_sandbox.toolbox.bounded_run import run_bounded

OUT_OF_TIME = 124
"""The exit code of a program that did not end in its time, as of `timeout`."""

_TAIL_CHARS = 500


async def run_for(
    runtime: vf.Runtime, argv: Sequence[str], seconds: float, failure: str, env: Mapping[str, str] | None = None
) -> vf.ProgramResult:
    """Run `argv` for at most `seconds`; out of time, the result has the exit code `OUT_OF_TIME`.

    What it started in the sandbox may still run then. `failure` says what has failed in the message of an error.

    Raises:
        SandboxError: the sandbox or its engine failed.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await run_bounded(runtime, argv, env or {})
    except TimeoutError as error:
        if not limit.expired():
            raise vf.SandboxError(f"{failure}: sandbox {runtime.name!r} timed out: {error}") from error
    except vf.SandboxError as error:
        raise type(error)(f"{failure}: {error}") from error  # retry rules go by its type
    return vf.ProgramResult(exit_code=OUT_OF_TIME, stdout="", stderr=f"did not end within {seconds:g} s")


async def run_checked(
    runtime: vf.Runtime,
    argv: Sequence[str],
    failure: str,
    *,
    seconds: float = 60.0,
    accepted: Collection[int] = (0,),
    error: type[vf.RolloutError] = vf.SandboxError,
    advice: str = "",
) -> vf.ProgramResult:
    """The result of `argv`, whose exit code is one of `accepted`.

    Args:
        runtime: The sandbox.
        argv: The program with its arguments; none is parsed by a shell.
        failure: What has failed when this fails, to open the message: "workdir '/x' cannot be made".
        seconds: When it is given up; `accepted` may hold `OUT_OF_TIME`.
        accepted: Exit codes that are an answer.
        error: What a failure is in a sandbox that is still alive.
        advice: What to change, at the end of the message.

    Raises:
        RolloutError: `error`, with the exit code and the last of what the program said.
    """
    result = await run_for(runtime, argv, seconds, failure)
    answered = result.exit_code in accepted
    # What came too late may come from a dead sandbox, too.
    if answered and result.exit_code != OUT_OF_TIME:
        return result
    if not await is_alive(runtime):
        raise vf.SandboxError(f"sandbox {runtime.name!r} is gone: {failure}")
    if answered:
        return result
    said = (result.stderr.strip() or result.stdout.strip())[-_TAIL_CHARS:]
    message = f"{failure} (exit code {result.exit_code})" + (f": {said}" if said else "")
    raise error(f"{message}; {advice}" if advice else message)
