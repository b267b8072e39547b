"""Sends a large file into a sandbox in pieces: a broken upload goes on at the piece that is missing.

Under the target's name there is either nothing of this upload or all of it, each piece compared by its SHA-256.
"""

import asyncio
import hashlib
import logging
import random
import time
from functools import lru_cache
from pathlib import Path

import verifiers.v1 as vf

from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import run_checked

logger = logging.getLogger("verifiers.v1.rollout_sandbox.toolbox.pieces")

PIECE_BYTES = 8 << 20
_MISSING = 4
"""The exit code of a join for which pieces are missing."""
_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Before the missing pieces are sent again; each is up to half shorter or longer, so that not all come back at once."""


async def send_in_pieces(runtime: vf.Runtime, source: Path, target: str) -> float:
    """Send a file of this machine, which nobody changes meanwhile, to the absolute path `target` in the sandbox, whose
    directory is made, with the mode 0644; returns the seconds that checking it inside took. In five tries pieces may
    fail, then the error is the last failure's."""
    sums = await asyncio.to_thread(_sums, source, source.stat().st_mtime_ns)
    missing, checking = list(range(len(sums))), 0.0
    for pause in (*_PAUSES_S, None):
        broken = await _send(runtime, source, target, missing)
        argv = program_argv("join_pieces.sh", target, *sums)
        failure = f"uploading {target} failed"
        started = time.monotonic()
        joined = await run_checked(runtime, argv, failure, seconds=120.0, accepted=(0, _MISSING))
        checking += time.monotonic() - started
        if joined.exit_code == 0:
            return checking
        lines = joined.stdout.split()
        missing = [int(line.removeprefix("missing=")) for line in lines if line.startswith("missing=")]
        lacking = f"{len(missing)} of {len(sums)} pieces of {target} are missing or differ"
        said = f"{lacking}: {broken or 'no error was told'}"
        if pause is None:
            kind = vf.SandboxError if broken is None else type(broken)
            raise kind(f"{failure}: {said}") from broken
        logger.info("sandbox %s: %s; they are sent again", runtime.name, said)
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
    raise AssertionError("the last try returns or raises")


async def _send(runtime: vf.Runtime, source: Path, target: str, numbers: list[int]) -> vf.SandboxError | None:
    for number in numbers:
        data = await asyncio.to_thread(_piece, source, number)
        try:
            await runtime.write(f"{target}.pieces/{number}", data)
        except vf.SandboxError as error:
            return error
    return None


def _piece(source: Path, number: int) -> bytes:
    with source.open("rb") as file:
        file.seek(number * PIECE_BYTES)
        return file.read(PIECE_BYTES)


@lru_cache(maxsize=16)
def _sums(source: Path, changed: int) -> tuple[str, ...]:
    """The SHA-256 of each piece of a file that was last changed then."""
    count = max(1, -(-source.stat().st_size // PIECE_BYTES))
    return tuple(hashlib.sha256(_piece(source, number)).hexdigest() for number in range(count))
