"""One shell command of a task, run in the sandbox with a deadline that holds.

When `run_command` returns, a command that ran out of time is dead in the sandbox, on every runtime: `timeout` inside
ends its process group, and the host's own deadline covers sandboxes without `timeout`. A sweep then ends what left the
group, found by a mark in its environment; only a process that also wiped that outlives it, until the sandbox ends.
"""

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import verifiers.v1 as vf
from pydantic import JsonValue

from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.checked_run import require_alive, run_for
from rollout_sandbox.toolbox.scoring import scoring_of

logger = logging.getLogger("verifiers.v1.rollout_sandbox.toolbox.command")

TAIL_CHARS = 2000
"""How much of each output stream is kept, counted from its end."""
MARK_VARIABLE = "OPENCODE_COMMAND_MARK"
"""The variable by which `end_marked` knows what a command started."""
_TEXT_VARIABLE = "OPENCODE_COMMAND"
_KILL_AFTER = 2
_HOST_GRACE = 8.0
_ENDED_BY_TIMEOUT = frozenset({124, 137, 143})


@dataclass(frozen=True)
class CommandResult:
    """Holds what one command did."""

    command: str
    exit_code: int
    duration: float
    """Wall-clock seconds."""
    stdout: str
    """The end of standard output, at most `TAIL_CHARS` characters."""
    stderr: str
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    def ending(self, most: int = 500) -> str:
        """Return how it ended and the last `most` characters of what it said, for an error message."""
        how = f"timed out after {self.duration:.1f} s" if self.timed_out else f"exit code {self.exit_code}"
        said = (self.stderr.strip() or self.stdout.strip())[-most:]
        return f"{how}: {said}" if said else f"{how}, no output"

    def record(self) -> dict[str, JsonValue]:
        return {**asdict(self), "duration": round(self.duration, 3)}


async def run_command(
    runtime: vf.Runtime,
    command: str,
    *,
    workdir: str,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    tools: str = "",
    shell: str = "sh",
) -> CommandResult:
    """Run `command` with `sh` in `workdir`, standard input empty, for at most `timeout` seconds; what it leaves running
    on purpose (a service) lives on, unless it timed out. `environment` holds further variables, `tools` directories for
    the front of `PATH`; `shell` runs our own program around the command."""
    mark = uuid.uuid4().hex
    argv = program_argv("run_command.sh", workdir, f"{timeout:g}", str(_KILL_AFTER), str(TAIL_CHARS), tools)
    # Not as an argument, which every user of the sandbox could read: it may hold what is expected of the agent's code.
    variables = {**(environment or {}), MARK_VARIABLE: mark, _TEXT_VARIABLE: command}
    argv[0] = shell
    started = time.monotonic()
    limit = timeout + _KILL_AFTER + _HOST_GRACE
    with scoring_of(runtime).agents_time():
        result = await run_for(runtime, argv, limit, f"{command!r} could not be run", variables)
    duration = time.monotonic() - started
    timed_out = duration >= timeout and result.exit_code in _ENDED_BY_TIMEOUT
    if timed_out:
        await end_marked(runtime, mark, command)
    stdout, stderr = result.stdout[-TAIL_CHARS:], result.stderr[-TAIL_CHARS:]
    return CommandResult(command, result.exit_code, duration, stdout, stderr, timed_out)


async def end_marked(runtime: vf.Runtime, mark: str, command: str) -> None:
    """Kill what is left of a timed-out command whose `MARK_VARIABLE` is `mark`."""
    sweep = program_argv("kill_marked.sh", f"{MARK_VARIABLE}={mark}")
    swept = await run_for(runtime, sweep, 30.0, f"timed-out command {command!r} could not be ended")
    if swept.exit_code != 0:
        await require_alive(runtime, f"ending timed-out command {command!r}")
        logger.warning("sandbox %s: processes of %r may have outlived their timeout", runtime.name, command)
