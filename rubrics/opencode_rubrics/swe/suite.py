"""One run of a task's suite in a sandbox that no agent has been in, and what is known of it.

Invariant: what decides is what the runtime says (the exit code), the log, and, of pytest, the record of a plugin of
ours; they must agree. Whatever imports the agent's code in the suite's process can lie in all three; nothing else can.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import verifiers.v1 as vf
from agent_sandbox.toolbox.bounded_file import FileState, read_bounded
from agent_sandbox.toolbox.checked_run import run_checked
from agent_sandbox.toolbox.command import CommandResult, run_command
from agent_sandbox.toolbox.files import upload_bundle
from agent_sandbox.toolbox.scoring import ScoringError
from agent_sandbox.verifiers_040 import lift_network
from pydantic import JsonValue

from opencode_rubrics.swe.foreign_parsers import parse_elsewhere
from opencode_rubrics.swe.parsers import BAD, EXIT_TEST, FAILED, GOOD, PARSERS, PASSED, named, short_name
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.programs import text_of

MAX_LOG = 16 << 20
"""Bytes of a log; a suite that prints more is ended."""
MAX_RECORD = 16 << 20

_RUNS_PYTEST = re.compile(r"\bpy\.?test\b")
_STARTS, _ENDS = ">>>>> Start Test Output", ">>>>> End Test Output"
"""Between these the scripts of SWE-bench run their suites."""
_EXIT_MARK = "OPENSWE_EXIT_CODE"
_RAN = re.compile(
    r"\b[1-9]\d* (?:passing|passed|specs?|examples?|assertions|SUCCESS)\b|^# tests [1-9]|\bTests?:? +(?:run: +)?[1-9]"
    r"|\bExecuted [1-9]\d* of [1-9]|': ok$",
    re.MULTILINE,
)
"""What runners say at their end if a test has run; for logs that name failures alone."""
_SHOWN = 4000


@dataclass
class SuiteRun:
    """What one run showed."""

    ended: CommandResult
    log: str
    states: dict[str, str] = field(default_factory=dict)
    """Status by test, as log and record agree."""
    problem: str = ""
    """Why it is not evidence; empty if it is."""
    recorded: bool = False
    """Whether the plugin's record is there, of all sessions that began."""
    collected: int | None = None
    """Tests that pytest collected, by the record."""
    passed: set[str] = field(default_factory=set)
    """Tests that passed, by the record."""
    replaced: int = 0
    """Functions of pytest and its like that were others at the end of a session than at its beginning."""
    disagreeing: int = 0
    """Tests that the log alone says passed."""
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


async def run_suite(runtime: vf.Runtime, problem: SweProblem, workdir: str, *, record: bool = True) -> SuiteRun:
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
    log = await read_bounded(runtime, f"{place}/log", MAX_LOG)
    found = await read_bounded(runtime, f"{place}/record", MAX_RECORD)
    await run_checked(runtime, ["rm", "-rf", "--", place], "the suite's place cannot be removed")
    text = log.decode(errors="replace") if isinstance(log, bytes) else ""
    made = SuiteRun(ended, text.replace(secret, "…"))
    if isinstance(log, FileState):
        made.problem = f"there is no log ({log.name.lower()})"
        return made
    sessions = _recorded(made, problem, found if isinstance(found, bytes) else b"", secret) if record else []
    if sessions is None:
        made.problem = "a session of pytest has begun and not ended, or none has begun"
    elif problem.parser == "exit-code":
        _judge_exit(made, problem, text, secret)
    else:
        await _judge_log(made, problem, text, sessions, secret)
    if ended.timed_out:
        made.problem = f"the suite did not end within {problem.timeout:g} s"
    elif len(log) >= MAX_LOG:
        made.problem = f"the suite printed more than {MAX_LOG >> 20} MiB"
    return made


def script_of(problem: SweProblem, secret: str) -> str:
    """The command with marks that are made for the run. Scripts of SWE-bench put back their tests after the suite: they
    are made to end with the suite's exit code."""
    lines = problem.command.replace(_EXIT_MARK, f"{_EXIT_MARK}_{secret}").split("\n")
    end = next((number for number, line in enumerate(lines) if _ENDS in line), None)
    if end is not None:
        lines = [*lines[:end], "suite_exit_code=$?", *lines[end:], "exit $suite_exit_code"]
    return "\n".join(lines).replace(_STARTS, f"{_STARTS} {secret}").replace(_ENDS, f"{_ENDS} {secret}")


Sessions = list[Mapping[str, JsonValue]]


def _recorded(made: SuiteRun, problem: SweProblem, found: bytes, secret: str) -> Sessions | None:
    """What the plugin recorded; empty where no record must be there, None where it is not whole."""
    if not (found or runs_pytest(problem)):
        return []
    sessions = read_record(found, secret)
    if sessions is not None:
        made.recorded = True
        made.collected, made.replaced = (_total(sessions, name) for name in ("collected", "replaced"))
        made.passed = {name for name, status in states_of(sessions).items() if status in GOOD}
    return sessions


def _total(sessions: Sessions, name: str) -> int:
    return sum(count for session in sessions if isinstance(count := session.get(name), int))


def _judge_exit(made: SuiteRun, problem: SweProblem, log: str, secret: str) -> None:
    """Of a suite that says one exit code: behind a mark that is made for the run, where its script has one."""
    if _EXIT_MARK not in problem.command:
        code: str | None = str(made.ended.exit_code)
    else:
        told = set(re.findall(rf"^{_EXIT_MARK}_{secret}=(-?\d+)\s*$", log, re.MULTILINE))
        code = told.pop() if len(told) == 1 else None
        if re.search(rf"{_EXIT_MARK}(?!_{secret})", log):
            made.problem = "the log holds an exit code that the script has not printed"
            return
    made.problem = "" if code is not None else "the script has not said how its suite ended"
    made.states = {} if code is None else {EXIT_TEST: PASSED if code == "0" else FAILED}


async def _judge_log(made: SuiteRun, problem: SweProblem, log: str, sessions: Sessions, secret: str) -> None:
    if _ENDS in problem.command:
        head, found_start, log = log.partition(f"{_STARTS} {secret}")
        log, found_end, _ = log.rpartition(f"{_ENDS} {secret}")
        if not (found_start and found_end):
            made.problem = f"its script has not run its suite: {head[-300:]}"
            return
    own = PARSERS.get(problem.parser)
    states = await parse_elsewhere(problem.parser, problem.options, log) if own is None else own(log)
    if sessions:
        states, made.disagreeing = agreed(states, states_of(sessions), short=problem.parser == "pytest-names")
    made.states = states
    if not states and not (problem.fail_only and _RAN.search(log)):
        made.problem = "no test is in its log"
    elif made.ended.exit_code != 0 and not any(status in BAD for status in states.values()):
        made.problem = f"it ended with exit code {made.ended.exit_code}, and no test in its log has failed"


def runs_pytest(problem: SweProblem) -> bool:
    """Whether its command names pytest, so that our record must be there."""
    return problem.parser in ("pytest", "pytest-names") or bool(_RUNS_PYTEST.search(problem.command))


def read_record(found: bytes, secret: str) -> Sessions | None:
    """What the plugin recorded of each session; None unless each that began has ended, and one has."""
    began, ended = [], []
    for line in found.decode(errors="replace").splitlines():
        seal, _, text = line.partition(" ")
        if hashlib.sha256((secret + text).encode()).hexdigest() != seal:
            return None
        told = json.loads(text)
        if "began" in told:
            began.append(told["began"])
        else:
            ended.append(told)
    return ended if ended and sorted(began) == sorted(session["ended"] for session in ended) else None


def states_of(sessions: Sessions) -> dict[str, str]:
    """The status of each test in all sessions, the worst of them."""
    recorded: dict[str, str] = {}
    for session in sessions:
        found = session.get("states")
        for name, status in (found if isinstance(found, dict) else {}).items():
            if recorded.get(name) not in BAD:
                recorded[name] = str(status)
    return recorded


def agreed(states: Mapping[str, str], recorded: Mapping[str, str], *, short: bool) -> tuple[dict[str, str], int]:
    """The states of the log, of which those that pass must be recorded so; and how many were not. A test that the
    record says failed has failed, whatever the log says."""
    if short:
        bad_last = sorted(recorded.items(), key=lambda item: item[1] in BAD)
        recorded = {short_name(name): status for name, status in bad_last}
    made, lied = dict(states), 0
    for name, status in states.items():
        truth = named(name, recorded) or recorded.get(name.split(" ")[0])
        if status in GOOD and truth not in GOOD:
            made[name] = truth or FAILED
            lied += 1
    return made | {name: status for name, status in recorded.items() if status in BAD}, lied
