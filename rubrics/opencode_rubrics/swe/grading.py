"""Judges a change in sandboxes that no agent has been in: puts it there, adds the tests, runs the suite.

Invariant: a run that is not evidence is made once more with the gold patch in place of the change, in a sandbox of its
own. Is that evidence, then the change has broken the suite, and nothing is solved; is it none either, then the task is
broken, and nothing is scored.
"""

import posixpath
import uuid
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import verifiers.v1 as vf
from agent_sandbox.toolbox.bounded_file import read_bounded
from agent_sandbox.toolbox.checked_run import run_checked, run_for
from agent_sandbox.toolbox.command import CommandResult
from agent_sandbox.toolbox.files import upload_bundle
from agent_sandbox.toolbox.scoring import BoxOrder, Scoring, ScoringError

from opencode_rubrics.swe.installation import Installed, install
from opencode_rubrics.swe.parsers import EXIT_TEST, FAILED, PASSED
from opencode_rubrics.swe.problem import SweProblem, paths_of_patch
from opencode_rubrics.swe.programs import argv_of
from opencode_rubrics.swe.split import Change
from opencode_rubrics.swe.suite import SuiteRun, run_suite, runs_pytest
from opencode_rubrics.swe.tree import put_files

MAX_SHOWN_PATCH = 256 << 10
"""Bytes of a patch that are kept on the trace."""

_SECONDS = 300.0
_PATCH_BYTES = 64 << 20


class StagingError(Exception):
    """A patch does not apply; the message says which and why."""


@dataclass
class Grade:
    """What became of one change."""

    run: SuiteRun
    patch: str = ""
    """The change as git tells it, or its beginning; empty where there is no git."""
    blamed: str = ""
    """Why the change is to blame for a run that is not evidence; empty if the run is evidence."""
    notes: list[str] = field(default_factory=list)


def untouched_box(scoring: Scoring, problem: SweProblem) -> AbstractAsyncContextManager[vf.Runtime]:
    """A second sandbox of the task, in which nothing is hidden; a `ScoringError` if this environment gives none."""
    return scoring.spare_box(BoxOrder(data={"swe": problem.model_copy(update={"hidden": []})}))


async def grade(box: vf.Runtime, scoring: Scoring, problem: SweProblem, workdir: str, change: Change) -> Grade:
    """What the suite says of a change, in the untouched sandbox `box`, or further ones. A `ScoringError` if it gives no
    evidence with the gold patch either, or the sandbox could not take the change."""
    run, patch = await _attempt(box, problem, workdir, change, record=True)
    if not run.problem:
        if run.recorded and run.states.get(EXIT_TEST) == PASSED:
            await _hold_against_gold(scoring, problem, workdir, run)
        return Grade(run, patch)
    gold = await gold_run(scoring, problem, workdir, record=True)
    log_alone = bool(gold.problem) and runs_pytest(problem)
    if log_alone:
        gold = await gold_run(scoring, problem, workdir, record=False)
    if gold.problem:
        what = "with its gold patch" if problem.gold_patch else "without any change"
        said = f"{gold.problem}: {gold.log[-500:]}"
        raise ScoringError(f"the suite is broken in an untouched sandbox too, {what}: {said}")
    if log_alone:
        async with untouched_box(scoring, problem) as another:
            run, patch = await _attempt(another, problem, workdir, change, record=False)
    blamed = f"{run.problem}, while an untouched sandbox gives evidence, so nothing is solved" if run.problem else ""
    notes = ["pytest of this task takes no plugin of ours, so its log alone counts"] if log_alone else []
    return Grade(run, patch, blamed, notes)


async def _attempt(
    box: vf.Runtime, problem: SweProblem, workdir: str, change: Change, *, record: bool
) -> tuple[SuiteRun, str]:
    paths = [*change.files, *change.gone]
    installed = await install(box, problem, workdir, paths)
    await put_files(box, workdir, change.files, change.gone)
    patch = await _make_patch(box, problem, workdir, paths)
    return await _staged(box, installed, workdir, record=record), patch


async def _hold_against_gold(scoring: Scoring, problem: SweProblem, workdir: str, run: SuiteRun) -> None:
    """An exit code names no test: those that pass with the gold patch must have passed, and not been skipped."""
    gold = await gold_run(scoring, problem, workdir, record=True)
    missing = sorted(gold.passed - run.passed)
    if missing and not gold.problem:
        run.states = {EXIT_TEST: FAILED}
        run.problem = f"{len(missing)} tests that pass with the gold patch have not passed: {missing[0]}, …"


async def gold_run(scoring: Scoring, problem: SweProblem, workdir: str, *, record: bool) -> SuiteRun:
    """What the suite says of the gold patch, or of the untouched tree where there is none; in a sandbox of its own. A
    `ScoringError` if that could not take the patch or the tests."""
    async with untouched_box(scoring, problem) as box:
        installed = await install(box, problem, workdir, paths_of_patch(problem.gold_patch))
        if problem.patch_file:
            await box.write(problem.patch_file, problem.gold_patch.encode())
        elif problem.gold_patch:
            try:
                await _apply(box, workdir, problem.gold_patch, "the gold patch")
            except StagingError as error:
                return _not_run(str(error))
        return await _staged(box, installed, workdir, record=record)


async def _staged(box: vf.Runtime, installed: Installed, workdir: str, *, record: bool) -> SuiteRun:
    if installed.failure:
        return _not_run(installed.failure)
    try:
        await stage_tests(box, installed.problem, workdir)
    except StagingError as error:
        return _not_run(str(error))
    run = await run_suite(box, installed.problem, workdir, record=record)
    run.installed_change = installed.with_change
    return run


def _not_run(problem: str) -> SuiteRun:
    return SuiteRun(CommandResult("", 0, 0.0, "", "", timed_out=False), "", problem=problem)


async def stage_tests(box: vf.Runtime, problem: SweProblem, workdir: str) -> None:
    """Put the tests of a row into a sandbox; a `StagingError` if its patch of tests does not apply, a `ScoringError` if
    a file could not be put there."""
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
        raise StagingError(f"{what} does not apply: {(done.stderr or done.stdout).strip()[-300:]}")


async def _make_patch(box: vf.Runtime, problem: SweProblem, workdir: str, paths: list[str]) -> str:
    """The change as a patch; put where the command expects it, if it expects one."""
    place = f"/tmp/.{uuid.uuid4().hex}"
    await box.write(place, b"".join(f"{path}\0".encode(errors="surrogateescape") for path in paths))
    argv = argv_of("make_patch", workdir, place, f"{place}.patch", problem.patch_file or "")
    made = await run_for(box, argv, _SECONDS, "the change cannot be made a patch")
    if made.exit_code:
        if problem.patch_file:
            raise ScoringError(f"the change cannot be made a patch ({made.exit_code}): {made.stderr.strip()[-300:]}")
        return ""
    if problem.patch_file:
        moved = ["cp", "--", f"{place}.patch", problem.patch_file]
        await run_checked(box, moved, "the patch cannot be put into place", error=ScoringError)
    found = await read_bounded(box, f"{place}.patch", _PATCH_BYTES)
    await run_for(box, ["rm", "-f", "--", f"{place}.patch"], _SECONDS, "the patch cannot be removed")
    return found[:MAX_SHOWN_PATCH].decode(errors="replace") if isinstance(found, bytes) else ""
