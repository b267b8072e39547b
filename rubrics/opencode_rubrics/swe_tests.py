"""Scores a software engineering task by its tests, where the agent never was.

Invariant: what is judged is what the agent changed below its work directory, taken out as bounded data and put into a
second, untouched sandbox of the same image, without its tests and test configuration. Nothing else of the agent's
sandbox has a part in the verdict: no repository, no program, no process. What the agent left that cannot be taken out,
or breaks the suite, is a 0; a suite that is broken without it, too, is an error.
"""

import asyncio
from contextlib import suppress
from typing import Any, Literal

import verifiers.v1 as vf
from agent_sandbox.toolbox.processes import end_agent
from agent_sandbox.toolbox.scoring import ScoringError, scoring_of
from agent_sandbox.toolbox.workdir import workdir_of

from opencode_rubrics.registry import register_rubric
from opencode_rubrics.rubric import AnyTrace, Rubric, RubricConfig, task_field
from opencode_rubrics.swe.grading import Grade, grade, untouched_box
from opencode_rubrics.swe.meddling import signs_of
from opencode_rubrics.swe.parsers import decided
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.split import Change, Splitter, configures_tests, split_paths
from opencode_rubrics.swe.tree import File, Tree, TreeError, changed_paths, ignored_paths, list_tree, take_files

INFO_KEY = "swe"
"""Where `trace.info` says what was changed and how the suite ended."""

_SHOWN_PATHS = 100
_OVERHEAD_S = 60.0


class SweTestsConfig(RubricConfig):
    """Options of `SweTestsRubric`: none; the row says everything."""

    type: Literal["swe-tests"] = "swe-tests"


@register_rubric
class SweTestsRubric(Rubric[SweTestsConfig]):
    """Reward `solved`: 1.0 if all tests that must pass do, and those that passed still do."""

    @vf.reward
    async def solved(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime) -> float:
        """The verdict; a `ScoringError` if the suite gives no evidence in an untouched sandbox either, a `TaskError` if
        the task has no problem of this kind."""
        problem, workdir, scoring = _problem(task), workdir_of(trace), scoring_of(trace)
        record: dict[str, Any] = {"problem": ""}
        trace.info[INFO_KEY] = record
        await end_agent(runtime)
        # The second sandbox starts while the agent's files are listed.
        listing = asyncio.create_task(list_tree(runtime, workdir))
        try:
            async with untouched_box(scoring, problem) as box:
                try:
                    before = await list_tree(box, workdir)
                except TreeError as error:
                    raise ScoringError(f"in an untouched sandbox {error}") from error
                try:
                    change, signs = await _changed(problem, workdir, (box, before), (runtime, await listing))
                except TreeError as error:
                    record |= {"problem": f"what the agent left cannot be judged, so nothing is solved: {error}"}
                    return 0.0
                record |= _told(change, signs)
                graded = await grade(box, scoring, problem, workdir, change)
        finally:
            listing.cancel()
            with suppress(asyncio.CancelledError, TreeError, vf.RolloutError):
                await listing
        return _recorded(record, problem, graded)

    @vf.metric
    async def swe_counts(self, task: vf.TaskData, trace: AnyTrace) -> dict[str, float]:
        """How many tests passed of how many, and what was changed."""
        record, problem = trace.info.get(INFO_KEY, {}), _problem(task)
        counted = {name: float(record.get(name, 0)) for name in _COUNTS}
        fail_to_pass = float(len(problem.exact or problem.fail_to_pass))
        totals = {"fail_to_pass_total": fail_to_pass, "pass_to_pass_total": float(len(problem.pass_to_pass))}
        return counted | totals

    def longest(self, task: vf.TaskData) -> float:
        """The suite may take its whole time, and once more without the agent's change."""
        problem = getattr(task, "swe", None)
        return 2 * problem.timeout + _OVERHEAD_S if isinstance(problem, SweProblem) else 0.0


_COUNTS = (
    "fail_to_pass_passed",
    "pass_to_pass_passed",
    "patch_files",
    "patch_bytes",
    "dropped_test_files",
    "dropped_environment_files",
    "meddling_signs",
    "tests_collected",
    "tests_claimed",
    "installed_change",
    "runner_replaced",
)


def _problem(task: vf.TaskData) -> SweProblem:
    return task_field(task, "swe", SweProblem, 'rubric "swe-tests" needs a task with a column "swe"')


async def _changed(
    problem: SweProblem, workdir: str, untouched: tuple[vf.Runtime, Tree], agents: tuple[vf.Runtime, Tree]
) -> tuple[Change, list[str]]:
    """What the agent changed, and the signs of meddling in it; a `TreeError` if it cannot be taken out."""
    (box, before), (runtime, after) = untouched, agents
    other, gone = changed_paths(before, after)
    splitter = Splitter(problem, before, after)
    new, lost = split_paths(splitter, other), split_paths(splitter, gone)
    change = Change(tests=[*new["test"], *lost["test"]], environment=[*new["environment"], *lost["environment"]])
    try:
        files = await take_files(runtime, workdir, after, new["solution"])
    except TreeError:
        # Build products may be larger than anything that an agent writes.
        ignored = await ignored_paths(box, workdir, [path for path in new["solution"] if path not in before])
        if not ignored:
            raise
        change.environment += sorted(ignored)
        files = await take_files(runtime, workdir, after, [path for path in new["solution"] if path not in ignored])
    judged = [*files, *lost["solution"]]
    originals: dict[str, File] = {}
    with suppress(TreeError):  # as far as the untouched sandbox's own can be taken out
        originals = await take_files(box, workdir, before, [path for path in judged if path in before])
    for path in judged:
        if configures_tests(path, originals.get(path), files.get(path)):
            change.tests.append(path)
        elif path in files:
            change.files[path] = files[path]
        else:
            change.gone.append(path)
    return change, signs_of(originals, change.files)


def _told(change: Change, signs: list[str]) -> dict[str, Any]:
    return {
        "changed": [*change.files][:_SHOWN_PATHS],
        "removed": change.gone[:_SHOWN_PATHS],
        "dropped_tests": change.tests[:_SHOWN_PATHS],
        "dropped_environment": change.environment[:_SHOWN_PATHS],
        "meddling": signs,
        "patch_files": len(change.files) + len(change.gone),
        "patch_bytes": change.size,
        "dropped_test_files": len(change.tests),
        "dropped_environment_files": len(change.environment),
        "meddling_signs": len(signs),
    }


def _recorded(record: dict[str, Any], problem: SweProblem, graded: Grade) -> float:
    """Put the verdict into the record."""
    run = graded.run
    lists = (problem.fail_to_pass, problem.pass_to_pass, problem.exact)
    fixed, kept, solved = decided(*lists, problem.skipped_is_kept, run.states, problem.fail_only)
    solved = solved and not run.problem
    record |= {
        "problem": graded.blamed,
        "notes": graded.notes,
        "patch": graded.patch,
        "suite": run.told(),
        "fail_to_pass_passed": fixed,
        "pass_to_pass_passed": kept,
        "tests_collected": run.collected or 0,
        "tests_claimed": run.disagreeing,
        "installed_change": int(run.installed_change),
        "runner_replaced": run.replaced,
    }
    return float(solved)
