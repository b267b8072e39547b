"""What one run of a suite says, by its exit code, its log and the record of our plugin: what is read is an agent's.

Invariant: the standard library alone, and no import that needs more: this runs in the process that reads what agents
made.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from opencode_rubrics.swe.parsers import (
    BAD,
    EXIT_TEST,
    FAILED,
    GOOD,
    PARSERS,
    PASSED,
    STATUSES,
    StatusByName,
    decided,
    short_name,
)

STARTS, ENDS = ">>>>> Start Test Output", ">>>>> End Test Output"
"""Between these the scripts of SWE-bench run their suites."""
EXIT_MARK = "OPENSWE_EXIT_CODE"
_RAN = re.compile(
    r"\b[1-9]\d* (?:passing|passed|specs?|examples?|assertions|SUCCESS)\b|^# tests [1-9]|\bTests?:? +(?:run: +)?[1-9]"
    r"|\bExecuted [1-9]\d* of [1-9]|': ok$",
    re.MULTILINE,
)
"""What runners say at their end if a test has run; for logs that name failures alone."""

_STRING, _OPENED = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL), re.compile(rb"[\[{]")
_LEVELS = 2
"""Arrays and objects in a line of the plugin's. Python's parser recurses in C, and where a library of this process has
raised the limit of recursion, what is nested deeply ends the process."""


class Suite(TypedDict):
    """Holds what a row wants of its suite."""

    command: str
    parser: str
    pytest: bool
    """Whether our record must be there."""
    fail_to_pass: list[str]
    pass_to_pass: list[str]
    exact: dict[str, str]
    skipped_is_kept: bool
    fail_only: bool


@dataclass(frozen=True)
class PytestSession:
    """Holds what our plugin recorded of one session of pytest, checked."""

    pid: int
    collected: int
    replaced: int
    states: dict[str, str]


@dataclass(kw_only=True)
class SuiteVerdict:
    """Holds what a run is worth."""

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
    """Status by test, as log and record agree."""


def judge(
    suite: Suite,
    log: str,
    record: bytes | None,
    secret: str,
    exit_code: int,
    foreign: Callable[[str], dict[str, str]],
) -> SuiteVerdict:
    """The verdict on a run; `foreign` reads logs that no parser of ours does. A `record` of None was not asked for."""
    made = SuiteVerdict()
    sessions: list[PytestSession] | None = []
    if record or (record is not None and suite["pytest"]):
        sessions = read_record(record, secret)
    if sessions is None:
        made.problem = "a session of pytest has begun and not ended, or none has begun, or its record is not ours"
        return made
    made.recorded = bool(sessions)
    made.collected = sum(session.collected for session in sessions)
    made.replaced = sum(session.replaced for session in sessions)
    if suite["parser"] == "exit-code":
        _judge_exit(made, suite["command"], log, secret, exit_code)
    else:
        _judge_log(made, suite, log, sessions, secret, exit_code, foreign)
    lists = suite["fail_to_pass"], suite["pass_to_pass"], suite["exact"], suite["skipped_is_kept"]
    made.fixed, made.kept, solved = decided(*lists, made.states, suite["fail_only"])
    made.solved = solved and not made.problem
    return made


def _judge_exit(made: SuiteVerdict, command: str, log: str, secret: str, exit_code: int) -> None:
    """Judge a suite that says one exit code: behind a mark that is made for the run, where its script has one."""
    if EXIT_MARK not in command:
        code: str | None = str(exit_code)
    else:
        mark = f"{EXIT_MARK}_{secret}"
        if log.count(EXIT_MARK) != log.count(mark):
            made.problem = "the log holds an exit code that the script has not printed"
            return
        said = {line[len(mark) + 1 :].strip() for line in log.split("\n") if line.startswith(f"{mark}=")}
        code = said.pop() if len(said) == 1 else None
        code = code if code is not None and code.removeprefix("-").isdecimal() else None
    made.problem = "" if code is not None else "the script has not said how its suite ended"
    made.states = {} if code is None else {EXIT_TEST: PASSED if code == "0" else FAILED}


def _judge_log(
    made: SuiteVerdict,
    suite: Suite,
    log: str,
    sessions: list[PytestSession],
    secret: str,
    exit_code: int,
    foreign: Callable[[str], dict[str, str]],
) -> None:
    if ENDS in suite["command"]:
        head, found_start, log = log.partition(f"{STARTS} {secret}")
        log, found_end, _ = log.rpartition(f"{ENDS} {secret}")
        if not (found_start and found_end):
            made.problem = f"its script has not run its suite: {head[-300:]}"
            return
    states = PARSERS.get(suite["parser"], foreign)(log)
    if sessions:
        states, made.disagreeing = agreed(states, states_of(sessions), short=suite["parser"] == "pytest-names")
    made.states = states
    if not states and not (suite["fail_only"] and _RAN.search(log)):
        made.problem = "no test is in its log"
    elif exit_code != 0 and not any(status in BAD for status in states.values()):
        made.problem = f"it ended with exit code {exit_code}, and no test in its log has failed"


def read_record(found: bytes, secret: str) -> list[PytestSession] | None:
    """Return what the plugin recorded of each session that ended; None unless each that began has ended, and one has,
    and each line is sealed and of the plugin's form."""
    began: Counter[int] = Counter()
    ended: list[PytestSession] = []
    lines = found.split(b"\n")
    if lines.pop():
        return None
    for line in lines:
        seal, _, text = line.partition(b" ")
        if hashlib.sha256(secret.encode() + text).hexdigest().encode() != seal:
            return None
        try:
            told = json.loads(text) if len(_OPENED.findall(_STRING.sub(b"", text))) <= _LEVELS else None
        except (ValueError, RecursionError):
            return None
        if isinstance(told, dict) and told.keys() == {"began"} and _is_count(told["began"]):
            began[told["began"]] += 1
        elif (session := _session(told)) is not None:
            ended.append(session)
        else:
            return None
    return ended if ended and began == Counter(session.pid for session in ended) else None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _session(told: object) -> PytestSession | None:
    """The record of a session's end; None if it has another form."""
    if not isinstance(told, dict) or told.keys() != {"ended", "exit", "collected", "states", "replaced"}:
        return None
    states, collected = told["states"], 0 if told["collected"] is None else told["collected"]
    counts = told["ended"], collected, told["replaced"]
    if not (all(map(_is_count, counts)) and type(told["exit"]) is int and isinstance(states, dict)):
        return None
    known = all(isinstance(status, str) and status in STATUSES for status in states.values())
    return PytestSession(told["ended"], collected, told["replaced"], states) if known else None


def states_of(sessions: list[PytestSession]) -> dict[str, str]:
    """The status of each test in all sessions, the worst of them."""
    recorded: dict[str, str] = {}
    for session in sessions:
        for name, status in session.states.items():
            if recorded.get(name) not in BAD:
                recorded[name] = status
    return recorded


def passed_alone(gold: tuple[bytes, str], run: tuple[bytes, str]) -> tuple[int, str]:
    """Return how many tests passed by the gold patch's record and not by a run's, and the first."""
    passed = []
    for record, secret in (gold, run):
        states = states_of(read_record(record, secret) or [])
        passed.append({name for name, status in states.items() if status in GOOD})
    missing = passed[0] - passed[1]
    return len(missing), min(missing, default="")


def agreed(states: Mapping[str, str], recorded: Mapping[str, str], *, short: bool) -> tuple[dict[str, str], int]:
    """The states of the log, of which those that pass must be recorded so; and how many were not. A test that the
    record says failed has failed, whatever the log says."""
    if short:
        bad_last = sorted(recorded.items(), key=lambda item: item[1] in BAD)
        recorded = {short_name(name): status for name, status in bad_last}
    made, lied, named = dict(states), 0, StatusByName(recorded)
    for name, status in states.items():
        truth = named(name) or recorded.get(name.split(" ", 1)[0])
        if status in GOOD and truth not in GOOD:
            made[name] = truth or FAILED
            lied += 1
    return made | {name: status for name, status in recorded.items() if status in BAD}, lied
