"""Programs of an agent's in a sandbox of any kind that has never held the agent: a spare one of its rollout.

Invariant: its programs are those of its image, so what runs, measures and reports is not the agent's. Each program
runs through `run-agent-code`, which keeps it apart from that and from the others.
"""

import secrets
import shlex
from collections.abc import Iterator

import verifiers.v1 as vf
from rollout_sandbox.programs import program_text
from rollout_sandbox.toolbox.agent_programs import ProgramBatch, ProgramEnd, ProgramLimits
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import run_checked
from rollout_sandbox.toolbox.command import run_command
from rollout_sandbox.toolbox.files import upload_bundle
from rollout_sandbox.toolbox.scoring import ScoringError
from rollout_sandbox.toolbox.scoring_home import scoring_home

_RESULT_BYTES = 256 << 20
_GRACE_S = 60.0


class BoxPrograms:
    """Runs programs in `runtime`, a spare box, whose temporary files are removed by it."""

    def __init__(self, runtime: vf.Runtime) -> None:
        self._runtime = runtime

    async def run(self, batch: ProgramBatch, limits: ProgramLimits) -> list[ProgramEnd]:
        """What the program did with each input, in order; a `ScoringError` if programs cannot be kept apart in it."""
        if self._runtime.type == "subprocess":
            raise ScoringError("code tests would run on this machine itself: leave out --env.sandbox.confine false")
        async with scoring_home(self._runtime, "/", exposed=False) as home:
            if not home.directory:
                raise ScoringError(f"there is no place for code tests in the sandbox: {home.unready or home.problem}")
            place = f"{home.directory}/tmp/{secrets.token_hex(4)}"
            bundle = {f"files/{name}": data for name, data in batch.files.items()}
            bundle |= {f"inputs/{number}": given.encode() for number, given in enumerate(batch.inputs, start=1)}
            bundle["run.sh"] = program_text("run_programs.sh", "opencode_rubrics").encode()
            await upload_bundle(self._runtime, bundle, place, failure="code tests could not be sent")
            await run_checked(self._runtime, ["mkdir", "-p", f"{place}/files"], "code tests could not be sent")
            numbers: list[object] = [len(batch.inputs), f"{limits.seconds:g}", int(limits.total_seconds)]
            numbers += [limits.memory_bytes >> 10, limits.processes, limits.output_bytes]
            ran = await run_command(
                self._runtime,
                shlex.join(["sh", f"{place}/run.sh", *map(str, numbers), batch.kept, *batch.argv]),
                workdir="/",
                timeout=min(limits.total_seconds, limits.seconds * len(batch.inputs)) + _GRACE_S,
                environment=home.environment,
                tools=home.tools,
                shell=home.shell,
            )
            found = await read_bounded(self._runtime, f"{place}/results", _RESULT_BYTES)
        if not ran.ok or isinstance(found, FileState):
            raise ScoringError(f"code tests could not be run: {home.failure or ran.ending()}")
        ends = list(_ends(found))
        if len(ends) != len(batch.inputs):
            raise ScoringError(f"{len(ends)} of {len(batch.inputs)} code tests were reported: {ran.ending()}")
        return ends


def _ends(data: bytes) -> Iterator[ProgramEnd]:
    while data:
        line, _, data = data.partition(b"\n")
        *lengths, status = line.decode().split(" ", 3)
        parts: list[bytes | None] = []
        for length in map(int, lengths):
            parts.append(data[:length] if length >= 0 else None)
            data = data[max(0, length) :]
        out, err = ((part or b"").decode(errors="replace") for part in parts[:2])
        yield ProgramEnd(status, out, err, parts[2])
