"""Judges a change in sandboxes that no agent has been in: puts it there, adds the tests, runs the suite.

Invariant: a run that is not evidence is made once more with the gold patch in place of the change, in a sandbox of its
own. Is that evidence, then the change has broken the suite, and nothing is solved; is it none either, then the task is
broken, and nothing is scored.
"""

import posixpath
import uuid
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import verifiers.v1 as vf
from rollout_sandbox.toolbox.bounded_file import read_bounded
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked, run_for
from rollout_sandbox.toolbox.command import CommandResult
from rollout_sandbox.toolbox.files import upload_bundle
from rollout_sandbox.toolbox.scoring import BoxOrder, Scoring, ScoringError, scoring_of

from opencode_rubrics.swe.installation import Installed, install
from opencode_rubrics.swe.problem import SweProblem, paths_of_patch
from opencode_rubrics.swe.programs import argv_of
from opencode_rubrics.swe.reader import reader
from opencode_rubrics.swe.suite import SuiteRun, run_suite
from opencode_rubrics.swe.transfer import put
from opencode_rubrics.swe.tree import TreeError, module_folders

MAX_SHOWN_PATCH = 256 << 10
"""Bytes of a patch that are kept on the trace."""

_SECONDS = 300.0
_PATCH_BYTES = 64 << 20


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
    evidence with the gold patch either."""
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
    installed = await install(box, problem, workdir, change.modules, changed=bool(change.removed))
    try:
        with scoring_of(box).agents_time():
            await put(box, workdir, change.removed, (change.writable, change.folders), change.packed)
            patch = await _make_patch(box, problem, workdir, change.removed)
    except (TreeError, StagingError) as error:
        return _not_run(str(error)), ""
    return await _staged(box, installed, workdir, record=record), patch


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
    """What the suite says of the gold patch, or of the untouched tree where there is none; in a sandbox of its own. A
    `ScoringError` if that could not take the patch or the tests."""
    async with untouched_box(scoring, problem) as box:
        paths = paths_of_patch(problem.gold_patch)
        installed = await install(box, problem, workdir, module_folders(paths), changed=bool(paths))
        if problem.patch_file:
            await box.write(problem.patch_file, problem.gold_patch.encode())
        elif problem.gold_patch:
            try:
                await _apply(box, workdir, problem.gold_patch, "the gold patch")
            except StagingError as error:
                return _not_run(str(error))
        return await _staged(box, installed, workdir, record=record, whole=whole)


async def _staged(
    box: vf.Runtime, installed: Installed, workdir: str, *, record: bool, whole: bool = False
) -> SuiteRun:
    if installed.failure:
        return _not_run(installed.failure)
    try:
        await stage_tests(box, installed.problem, workdir)
    except StagingError as error:
        return _not_run(str(error))
    run = await run_suite(box, installed.problem, workdir, record=record, whole=whole)
    run.installed_change = installed.with_change
    return run


def _not_run(problem: str) -> SuiteRun:
    return SuiteRun(CommandResult("", 0, 0.0, "", "", timed_out=False), problem=problem)


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


async def _make_patch(box: vf.Runtime, problem: SweProblem, workdir: str, paths: bytes) -> str:
    """The change as a patch; put where the command expects it, if it expects one, or a `StagingError`."""
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
            raise StagingError(f"the change cannot be made a patch ({made.exit_code}): {made.stderr.strip()[-300:]}")
        return ""
    found = await read_bounded(box, f"{place}.patch", _PATCH_BYTES)
    await run_for(box, ["rm", "-f", "--", f"{place}.patch"], _SECONDS, "the patch cannot be removed")
    return found[:MAX_SHOWN_PATCH].decode(errors="replace") if isinstance(found, bytes) else ""
