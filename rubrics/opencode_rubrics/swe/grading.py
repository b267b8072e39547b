"""Judges a change in sandboxes that no agent has been in: puts it there, adds the tests, runs the suite.

Invariant: a run that is not evidence is made once more with the gold patch in place of the change, in a sandbox of its
own. Is that evidence, then nothing is solved; is it none either, then the task is broken, and nothing is scored.

What decides is the exit code, the log and, of pytest, the record of a plugin of ours; they must agree. Whatever imports
the agent's code in the suite's process can lie in all three; nothing else can.

An installation runs whatever a change put into `setup.py` and its like. An editable package is installed as it was,
where a change is of Python modules alone, in directories that were there; else with the change, and that is told.
"""

import posixpath
import re
import secrets
import uuid
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import verifiers.v1 as vf
from pydantic import JsonValue
from rollout_sandbox.compat import lift_network
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked, run_for
from rollout_sandbox.toolbox.command import CommandResult, run_command
from rollout_sandbox.toolbox.files import upload_bundle
from rollout_sandbox.toolbox.scoring import Scoring, SecondSandboxOptions, scoring_of

from opencode_rubrics.errors import ReaderError
from opencode_rubrics.swe.file_tree import TreeError, module_folders
from opencode_rubrics.swe.foreign_parsers import foreign_of
from opencode_rubrics.swe.parsers import PARSERS
from opencode_rubrics.swe.problem import SweProblem, paths_of_patch
from opencode_rubrics.swe.programs import argv_of, text_of
from opencode_rubrics.swe.reader import reader
from opencode_rubrics.swe.suite_verdict import ENDS, EXIT_MARK, STARTS, SuiteVerdict
from opencode_rubrics.swe.transfer import put

MAX_SHOWN_PATCH = 256 << 10
"""Bytes of a patch that are kept on the trace."""

_SECONDS = 300.0
_MAX_LOG = 16 << 20
"""Bytes of a log; a suite that prints more is ended."""
MAX_RECORD = 16 << 20
_SHOWN = 4000

_PIP = r"\s*(?:python[\d.]*\s+-m\s+)?pip[\d.]*\s+install\b"
_HERE = r"\s(?:-e|--editable)[\s=]+['\"]?\.(?:\[[\w, -]*\])?['\"]?(?:\s|$)"
_EDITABLE = re.compile(
    rf"{_PIP}(?=.*{_HERE})[^;&|<>$`()]*|\s*python[\d.]*\s+setup\.py\s+(?:develop|build_ext\s+(?:--inplace|-i))\s*"
)
_INSTALLS = re.compile(
    r"\bpip[\d.]*\s+install\b[^\n;&|]*['\"\s]\.{1,2}(?:/|\[|['\"\s]|$)|\bsetup\.py\s+\w"
    r"|\b(?:npm|yarn|pnpm|composer|bundle)\s+(?:i|ci|install)\b"
    r"|\b(?:make|poetry|pdm|flit|maturin|hatch|meson|mvn|gradle|gradlew)\s",
    re.MULTILINE,
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?^\s*\2$", re.MULTILINE | re.DOTALL)
_COMPOUND = re.compile(r"\s*(?:if|for|while|until|case|select|function|\{|\(|\w+\s*\(\))|.*(?:\\|&&|\|)\s*$")
_ALL_THERE = 'cd -- "$1" && shift && for folder; do [ -d "$folder" ] || exit 1; done'


@dataclass(frozen=True)
class Change:
    """One change, as an untouched sandbox gets it (see `transfer.put`)."""

    removed: bytes
    writable: bytes
    folders: bytes
    packed: bytes
    modules: list[str] | None
    """The directories of a change of Python modules alone."""
    told: dict[str, Any]
    """What is said of it on the trace."""


class _StagingError(Exception):
    """The suite cannot be run: a patch does not apply, or the package is not installed."""


@dataclass(kw_only=True)
class SuiteRun(SuiteVerdict):
    """Holds what one run showed; states of tests only where it is read `whole`."""

    ended: CommandResult
    log: str = ""
    """All of it for a run that is read `whole`, else its end."""
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


@dataclass
class Grade:
    """Holds what became of one change."""

    run: SuiteRun
    patch: str = ""
    """The change as git tells it, or its beginning; empty where there is no git."""
    blamed: str = ""
    """Why the change is to blame for a run that is not evidence; empty if the run is evidence."""
    notes: list[str] = field(default_factory=list)


def untouched_box(scoring: Scoring, problem: SweProblem) -> AbstractAsyncContextManager[vf.Runtime]:
    """A second sandbox of the task, in which nothing is hidden; a `ScoringError` if this environment gives none."""
    return scoring.second_sandbox(SecondSandboxOptions(data={"swe": problem.model_copy(update={"hidden": []})}))


async def grade(box: vf.Runtime, scoring: Scoring, problem: SweProblem, workdir: str, change: Change) -> Grade:
    """Return what the suite says of a change, in the untouched sandbox `box`, or further ones. A `ScoringError` if it
    gives no evidence with the gold patch either."""
    run, patch = await _attempt(box, problem, workdir, change, record=True)
    if not run.problem:
        if run.recorded and problem.parser == "exit-code" and run.solved:
            await _hold_against_gold(scoring, problem, workdir, run)
        return Grade(run, patch)
    async with scoring.control():
        log_alone = await _log_alone(scoring, problem, workdir)
    if log_alone:
        async with untouched_box(scoring, problem) as another:
            run, patch = await _attempt(another, problem, workdir, change, record=False)
    blamed = f"{run.problem}, while an untouched sandbox gives evidence, so nothing is solved" if run.problem else ""
    notes = ["pytest of this task takes no plugin of ours, so its log alone counts"] if log_alone else []
    return Grade(run, patch, blamed, notes)


async def _log_alone(scoring: Scoring, problem: SweProblem, workdir: str) -> bool:
    """Whether the suite gives evidence with the gold patch only without our record; a `ScoringError` if not even so."""
    gold = await gold_run(scoring, problem, workdir, record=True)
    log_alone = bool(gold.problem) and problem.runs_pytest
    if log_alone:
        gold = await gold_run(scoring, problem, workdir, record=False)
    if gold.problem:
        what = "with its gold patch" if problem.gold_patch else "without any change"
        said = f"{gold.problem}: {gold.log[-500:]}"
        raise ScoringError(f"the suite is broken in an untouched sandbox too, {what}: {said}")
    return log_alone


async def _attempt(
    box: vf.Runtime, problem: SweProblem, workdir: str, change: Change, *, record: bool
) -> tuple[SuiteRun, str]:
    patch = ""
    try:
        installed = await install(box, problem, workdir, change.modules, changed=bool(change.removed))
        with scoring_of(box).agents_time():
            await put(box, workdir, change.removed, (change.writable, change.folders), change.packed)
            patch = await _make_patch(box, problem, workdir, change.removed)
        return await _staged(box, installed, workdir, record=record), patch
    except (TreeError, _StagingError) as error:
        return _not_run(str(error)), patch


async def _hold_against_gold(scoring: Scoring, problem: SweProblem, workdir: str, run: SuiteRun) -> None:
    """An exit code names no test: those that pass with the gold patch must have passed, and not been skipped."""
    async with scoring.control():
        gold = await gold_run(scoring, problem, workdir, record=True)
    (theirs, key), (ours, ours_key) = gold.record, run.record
    if gold.problem:
        return
    with scoring.agents_time():
        async with reader() as reading:
            said = await reading.ask("passed_alone", gold=theirs, gold_secret=key, run=ours, secret=ours_key)
    if said["count"]:
        run.solved, run.fixed = False, 0
        run.problem = f"{said['count']} tests that pass with the gold patch have not passed: {said['first']}, …"


async def gold_run(
    scoring: Scoring, problem: SweProblem, workdir: str, *, record: bool, whole: bool = False
) -> SuiteRun:
    """Return what the suite says of the gold patch, or of the untouched tree where there is none; in a sandbox of its
    own. A `ScoringError` if that could not take the patch or the tests."""
    async with untouched_box(scoring, problem) as box:
        paths = paths_of_patch(problem.gold_patch)
        try:
            installed = await install(box, problem, workdir, module_folders(paths), changed=bool(paths))
            if problem.patch_file:
                await box.write(problem.patch_file, problem.gold_patch.encode())
            elif problem.gold_patch:
                await _apply(box, workdir, problem.gold_patch, "the gold patch")
            return await _staged(box, installed, workdir, record=record, whole=whole)
        except _StagingError as error:
            return _not_run(str(error))


async def _staged(
    box: vf.Runtime, installed: tuple[SweProblem, bool], workdir: str, *, record: bool, whole: bool = False
) -> SuiteRun:
    problem, with_change = installed
    await stage_tests(box, problem, workdir)
    run = await run_suite(box, problem, workdir, record=record, whole=whole)
    run.installed_change = with_change
    return run


def _not_run(problem: str) -> SuiteRun:
    return SuiteRun(ended=CommandResult("", 0, 0.0, "", "", timed_out=False), problem=problem)


async def stage_tests(box: vf.Runtime, problem: SweProblem, workdir: str) -> None:
    """Put the tests of a row into a sandbox; a `_StagingError` if their patch does not apply, else a `ScoringError`."""
    for place, source in problem.test_copies.items():
        argv = ["sh", "-c", 'rm -rf -- "$2" && cp -a -- "$1" "$2"', "copy", source, posixpath.join(workdir, place)]
        await run_checked(box, argv, f"the tests at {source} cannot be copied", error=ScoringError)
    if problem.test_patch and not problem.command_applies_tests:
        await _apply(box, workdir, problem.test_patch, "the patch of tests")
    files = {posixpath.join(workdir, path).lstrip("/"): text for path, text in problem.test_files.items()}
    await upload_bundle(box, files, "/", failure="tests could not be sent", error=ScoringError)


async def _apply(box: vf.Runtime, workdir: str, patch: str, what: str) -> None:
    place = f"/tmp/.{uuid.uuid4().hex}.patch"
    await box.write(place, (patch if patch.endswith("\n") else f"{patch}\n").encode())
    done = await run_for(box, argv_of("apply_patch", workdir, place), _SECONDS, f"{what} cannot be applied")
    if done.exit_code:
        raise _StagingError(f"{what} does not apply: {(done.stderr or done.stdout).strip()[-300:]}")


async def _make_patch(box: vf.Runtime, problem: SweProblem, workdir: str, paths: bytes) -> str:
    """The change as a patch; put where the command expects it, if it expects one, or a `_StagingError`."""
    place = f"/tmp/.{uuid.uuid4().hex}"
    await box.write(place, paths)
    argv = argv_of("make_patch", workdir, place, f"{place}.patch", problem.patch_file or "")
    made = await run_for(box, argv, _SECONDS, "the change cannot be made a patch")
    if problem.patch_file and not made.exit_code:
        moved = ["cp", "--", f"{place}.patch", problem.patch_file]
        made = await run_for(box, moved, _SECONDS, "the patch cannot be put into place")
    if made.exit_code:
        if problem.patch_file:
            await require_alive(box, "a change was made a patch")
            raise _StagingError(f"the change cannot be made a patch ({made.exit_code}): {made.stderr.strip()[-300:]}")
        return ""
    found = await read_bounded(box, f"{place}.patch", 64 << 20)
    await run_for(box, ["rm", "-f", "--", f"{place}.patch"], _SECONDS, "the patch cannot be removed")
    return found[:MAX_SHOWN_PATCH].decode(errors="replace") if isinstance(found, bytes) else ""


def parted(command: str) -> tuple[str, str] | None:
    """A script up to its last editable installation, and the script without any; None where it is not so simple."""
    lines = command.split("\n")
    until = next((number for number, line in enumerate(lines) if "<<" in line or _COMPOUND.match(line)), len(lines))
    found = [number for number, line in enumerate(lines[:until]) if _EDITABLE.fullmatch(line)]
    if not found:
        return None
    rest = "\n".join(line for number, line in enumerate(lines) if number not in found)
    return "\n".join(lines[: found[-1] + 1]) + "\n", rest


def installs(command: str) -> bool:
    """Whether a script installs or builds what is in its work directory."""
    return _INSTALLS.search(_HEREDOC.sub("\n", command)) is not None


async def install(
    box: vf.Runtime, problem: SweProblem, workdir: str, folders: Sequence[str] | None, *, changed: bool
) -> tuple[SweProblem, bool]:
    """Install the package of an untouched sandbox, if a change has no part in that: one of Python modules alone, in
    these `folders`; None is another change. What is left of the task, and whether its command installs or builds the
    package with the change in it; a `_StagingError` if it was not installed in time."""
    parts = parted(problem.command)
    if parts is not None and folders is not None and await _all_there(box, workdir, folders):
        await lift_network(box)
        script = f"/tmp/.{uuid.uuid4().hex}"
        await box.write(script, parts[0].encode())
        shell = "$(command -v bash || command -v sh)"
        ended = await run_command(box, f'"{shell}" {script}; rm -f {script}', workdir=workdir, timeout=problem.timeout)
        if ended.timed_out:
            raise _StagingError(f"its package was not installed within {problem.timeout:g} s")
        problem = problem.model_copy(update={"command": parts[1]})
    return problem, changed and installs(problem.command)


async def _all_there(box: vf.Runtime, workdir: str, folders: Sequence[str]) -> bool:
    argv = ["sh", "-c", _ALL_THERE, "all-there", workdir, *folders]
    return (await run_for(box, argv, _SECONDS, "directories cannot be looked for")).exit_code == 0


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
    run = f"sh {place}/run.sh {place} {_MAX_LOG}"
    ended = await run_command(runtime, run, workdir=workdir, timeout=problem.timeout, environment=environment)
    with scoring_of(runtime).agents_time():
        log, left = await _left(runtime, f"{place}/log", _MAX_LOG), await _left(runtime, f"{place}/record", MAX_RECORD)
        made = await _read(ended, log, left if record else None, secret, problem, whole)
    if ended.timed_out:
        made.problem = f"the suite did not end within {problem.timeout:g} s"
    made.solved = made.solved and not made.problem
    return made


async def _read(
    ended: CommandResult, log: bytes | str, record: bytes | str | None, secret: str, problem: SweProblem, whole: bool
) -> SuiteRun:
    """Return what a run is worth by what it left; without a `record`, none was asked for."""
    found = record if isinstance(record, bytes) else b""
    made = SuiteRun(ended=ended, record=(found, secret))
    if isinstance(log, str):
        made.problem = f"there is no log ({log})"
        return made
    made.log = (log if whole else log[-4 * _SHOWN :]).decode(errors="replace").replace(secret, "…")
    if len(log) >= _MAX_LOG:
        made.problem = f"the suite printed more than {_MAX_LOG >> 20} MiB"
        return made
    foreign = foreign_of(problem.parser, problem.options) if problem.parser not in PARSERS else {}
    asked = {"secret": secret, "exit_code": ended.exit_code, "suite": problem.suite, "foreign": foreign, "whole": whole}
    try:
        async with reader() as reading:
            judged = await reading.ask("judge", log=log, record=found, recording=record is not None, **asked)
    except ReaderError as error:
        judged = {"problem": f"its log and record cannot be read: {error}"}
    return replace(made, **judged)


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
