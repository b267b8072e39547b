"""Scores a software engineering task by its tests, where the agent never was.

Invariant: what is judged is what the agent changed below its work directory, taken out as bounded data and put into a
second, untouched sandbox of the same image, without its tests and test configuration. What the agent left that cannot
be taken out, or breaks the suite, is a 0; a suite that is broken without it, too, is an error.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import verifiers.v1 as vf
from rollout_sandbox.toolbox.scoring import Scoring, end_agent, not_the_agents, scoring_of
from rollout_sandbox.toolbox.workdir import workdir_of

from opencode_rubrics.rubric import AnyTrace, Rubric, RubricConfig, task_field
from opencode_rubrics.swe.file_tree import TreeError
from opencode_rubrics.swe.foreign_parsers import foreign_of
from opencode_rubrics.swe.grading import Change, grade, untouched_box
from opencode_rubrics.swe.parsers import PARSERS
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.reader import ReadingProcess, reader
from opencode_rubrics.swe.transfer import archive, ignored_paths, listing

SWE_KEY = "swe"
"""Where `trace.info` says what was changed and how the suite ended."""

_OVERHEAD_S = 60.0


class SweTestsConfig(RubricConfig):
    """Options of `SweTestsRubric`: none; the row says everything."""

    type: Literal["swe-tests"] = "swe-tests"


class SweTestsRubric(Rubric[SweTestsConfig]):
    """Reward `solved`: 1.0 if all tests that must pass do, and those that passed still do."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The problem; a `TaskError` if the task has none, a `ScoringError` if its logs' parser is not installed."""
        problem = task_field(task, "swe", SweProblem, 'rubric "swe-tests" needs a task with a column "swe"')
        if problem.parser not in PARSERS:
            foreign_of(problem.parser, problem.options)
        return {"problem": problem}

    @vf.reward
    async def solved(self, problem: SweProblem, trace: AnyTrace, runtime: vf.Runtime) -> float:
        """The verdict; a `ScoringError` if the suite gives no evidence in an untouched sandbox either."""
        workdir, scoring = workdir_of(trace), scoring_of(trace)
        record: dict[str, Any] = {"problem": ""}
        trace.info[SWE_KEY] = record
        await end_agent(runtime)
        # The second sandbox starts while the agent's files are listed.
        listed = asyncio.create_task(_agents_listing(scoring, runtime, workdir))
        try:
            async with untouched_box(scoring, problem) as box:
                with not_the_agents():
                    before = await listing(box, workdir)
                try:
                    change = await _changed(problem, workdir, (box, before), (runtime, await listed), scoring)
                except TreeError as error:
                    record |= {"problem": f"what the agent left cannot be judged, so nothing is solved: {error}"}
                    return 0.0
                record |= change.told
                graded = await grade(box, scoring, problem, workdir, change)
        finally:
            listed.cancel()
            with suppress(asyncio.CancelledError, TreeError, vf.RolloutError):
                await listed
        run = graded.run
        record |= {
            "problem": graded.blamed,
            "notes": graded.notes,
            "patch": graded.patch,
            "suite": run.told(),
            "fail_to_pass_passed": run.fixed,
            "pass_to_pass_passed": run.kept,
            "tests_collected": run.collected,
            "tests_claimed": run.disagreeing,
            "installed_change": int(run.installed_change),
            "runner_replaced": run.replaced,
        }
        return float(run.solved)

    @vf.metric
    async def swe_counts(self, problem: SweProblem, trace: AnyTrace) -> dict[str, float]:
        """Return how many tests passed of how many, and what was changed."""
        record = trace.info.get(SWE_KEY, {})
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


async def _agents_listing(scoring: Scoring, runtime: vf.Runtime, workdir: str) -> bytes:
    with scoring.agents_time():
        return await listing(runtime, workdir)


async def _changed(
    problem: SweProblem,
    workdir: str,
    untouched: tuple[vf.Runtime, bytes],
    agents: tuple[vf.Runtime, bytes],
    scoring: Scoring,
) -> Change:
    """Return what the agent changed; a `TreeError` if it cannot be taken out."""
    (box, before), (runtime, after) = untouched, agents
    with scoring.agents_time():
        async with reader() as reading:
            asked = await reading.ask("compare", before=before, after=after, row=problem.row_paths)
            try:
                files = await _files(reading, runtime, workdir, asked)
            except TreeError:
                # Build products may be larger than anything that an agent writes.
                ignored = await ignored_paths(box, workdir, asked["new"])
                if not ignored:
                    raise
                asked = await reading.ask("leave", ignored=ignored)
                files = await _files(reading, runtime, workdir, asked)
            originals = b""
            with suppress(TreeError):  # as far as the untouched sandbox's own can be taken out
                originals = await archive(box, workdir, files["originals"])
            return Change(**await reading.ask("change", originals=originals))


async def _files(reading: ReadingProcess, runtime: vf.Runtime, workdir: str, asked: dict[str, Any]) -> dict[str, Any]:
    if asked["refused"]:
        raise TreeError(asked["refused"])
    return await reading.ask("files", archive=await archive(runtime, workdir, asked["names"]))
