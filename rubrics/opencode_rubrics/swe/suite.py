"""One run of a task's suite in a sandbox that no agent has been in, and what is known of it.

Invariant: what decides is what the runtime says (the exit code), the log, and, of pytest, the record of a plugin of
ours; they must agree. Whatever imports the agent's code in the suite's process can lie in all three; nothing else can.
Once that code ran, a sandbox that lives and does not give them is a run without evidence.
"""

import secrets
from dataclasses import dataclass, field, replace

import verifiers.v1 as vf
from pydantic import JsonValue
from rollout_sandbox.compat import lift_network
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import require_alive
from rollout_sandbox.toolbox.command import CommandResult, run_command
from rollout_sandbox.toolbox.files import upload_bundle
from rollout_sandbox.toolbox.scoring import ScoringError, scoring_of

from opencode_rubrics.swe.foreign_parsers import foreign_of
from opencode_rubrics.swe.parsers import PARSERS
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.programs import text_of
from opencode_rubrics.swe.reader import ReaderError, reader
from opencode_rubrics.swe.verdict import ENDS, EXIT_MARK, STARTS

MAX_LOG = 16 << 20
"""Bytes of a log; a suite that prints more is ended."""
MAX_RECORD = 16 << 20

_SHOWN = 4000


@dataclass
class SuiteRun:
    """What one run showed."""

    ended: CommandResult
    log: str = ""
    """All of it for a run that is read `whole`, else its end."""
    problem: str = ""
    """Why it is not evidence; empty if it is."""
    recorded: bool = False
    """Whether the plugin's record is there, of all sessions that began."""
    collected: int = 0
    """Tests that pytest collected, by the record."""
    replaced: int = 0
    """Functions of pytest and its like that were others at the end of a session than at its beginning."""
    disagreeing: int = 0
    """Tests that the log alone says passed."""
    fixed: int = 0
    """Tests of `fail_to_pass` that passed, or of `exact` that are as expected."""
    kept: int = 0
    """Tests of `pass_to_pass` that passed."""
    solved: bool = False
    states: dict[str, str] = field(default_factory=dict)
    """Status by test, as log and record agree; of a run that is read `whole`."""
    record: tuple[bytes, str] = (b"", "")
    """The record as it was written, and its key."""
    installed_change: bool = False
    """Whether its command installed or built the package with the change in it."""

    def told(self) -> dict[str, JsonValue]:
        """The run as JSON, for `trace.info`."""
        return {
            "exit_code": self.ended.exit_code,
            "duration": round(self.ended.duration, 3),
            "timed_out": self.ended.timed_out,
            "problem": self.problem,
            "recorded": self.recorded,
            "log": self.log[-_SHOWN:],
        }


async def run_suite(
    runtime: vf.Runtime, problem: SweProblem, workdir: str, *, record: bool = True, whole: bool = False
) -> SuiteRun:
    """Run the suite in a sandbox with the task's files, the change and the tests, and read what it says; to `record`,
    pytest is given our plugin. A `ScoringError` if our own files could not be put there, or the parser is missing."""
    await lift_network(runtime)
    secret = secrets.token_hex(16)
    place, plugin = f"/tmp/.{secrets.token_hex(8)}", f"record_{secrets.token_hex(8)}"
    bundle: dict[str, str] = {"suite": script_of(problem, secret), "run.sh": text_of("run_suite.sh")}
    environment = {}
    if record:
        bundle[f"plugin/{plugin}.py"] = text_of("pytest_record.py")
        environment = {
            "PYTEST_ADDOPTS": f"-p {plugin}",
            "PYTHONPATH": f"{place}/plugin",
            "SUITE_RECORD_PATH": f"{place}/record",
            "SUITE_RECORD_KEY": secret,
        }
    await upload_bundle(runtime, bundle, place, failure="the suite could not be sent", error=ScoringError)
    run = f"sh {place}/run.sh {place} {MAX_LOG}"
    ended = await run_command(runtime, run, workdir=workdir, timeout=problem.timeout, environment=environment)
    with scoring_of(runtime).agents_time():
        left = [await _left(runtime, f"{place}/{name}", most) for name, most in _LEFT.items()]
        made = await _read(ended, left[0], left[1] if record else None, secret, problem, whole)
    if ended.timed_out:
        made.problem = f"the suite did not end within {problem.timeout:g} s"
    made.solved = made.solved and not made.problem
    return made


async def _read(
    ended: CommandResult, log: bytes | str, record: bytes | str | None, secret: str, problem: SweProblem, whole: bool
) -> SuiteRun:
    """What a run is worth by what it left; without a `record`, none was asked for."""
    found = record if isinstance(record, bytes) else b""
    made = SuiteRun(ended, record=(found, secret))
    if isinstance(log, str):
        made.problem = f"there is no log ({log})"
        return made
    made.log = (log if whole else log[-4 * _SHOWN :]).decode(errors="replace").replace(secret, "…")
    if len(log) >= MAX_LOG:
        made.problem = f"the suite printed more than {MAX_LOG >> 20} MiB"
        return made
    foreign = foreign_of(problem.parser, problem.options) if problem.parser not in PARSERS else {}
    asked = {"secret": secret, "exit_code": ended.exit_code, "suite": problem.suite, "foreign": foreign, "whole": whole}
    try:
        async with reader() as reading:
            judged = await reading.ask("judge", log=log, record=found, recording=record is not None, **asked)
    except ReaderError as error:
        judged = {"problem": f"its log and record cannot be read: {error}"}
    return replace(made, **judged)


_LEFT = {"log": MAX_LOG, "record": MAX_RECORD}


async def _left(runtime: vf.Runtime, path: str, most: int) -> bytes | str:
    """A file that the suite has left, or why there is none. The programs that read it may be the suite's by now."""
    try:
        found = await read_bounded(runtime, path, most)
    except vf.SandboxError as error:
        await require_alive(runtime, "what a suite left was read")
        return str(error)
    return found.name.lower() if isinstance(found, FileState) else found


def script_of(problem: SweProblem, secret: str) -> str:
    """The command with marks that are made for the run. Scripts of SWE-bench put back their tests after the suite: they
    are made to end with the suite's exit code."""
    lines = problem.command.replace(EXIT_MARK, f"{EXIT_MARK}_{secret}").split("\n")
    end = next((number for number, line in enumerate(lines) if ENDS in line), None)
    if end is not None:
        lines = [*lines[:end], "suite_exit_code=$?", *lines[end:], "exit $suite_exit_code"]
    return "\n".join(lines).replace(STARTS, f"{STARTS} {secret}").replace(ENDS, f"{ENDS} {secret}")
