"""Scores a rollout by the test script of its task, as Harbor and Terminal-Bench 2 do (see `staged_tests`).

Invariant: a script that gives no verdict is run once more in an untouched copy of the sandbox. Gives it one there, then
the agent took it away, and the reward is 0; gives it none there either, then the tests are broken, and nothing is
scored.

No artifact can leave its own path in the second sandbox, and it is the agent's doing, not an error, when one cannot be
carried.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import PurePosixPath
from typing import Literal, Self

import verifiers.v1 as vf
from pydantic import Field, model_validator
from rollout_sandbox.told import task_name
from rollout_sandbox.toolbox.archives import unpack_archive
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked, run_for
from rollout_sandbox.toolbox.scoring import BoxOrder, Scoring, ScoringError, scoring_of
from rollout_sandbox.toolbox.workdir import workdir_of
from verifiers.v1.utils.artifacts import ARTIFACTS_DIR, MAX_ARTIFACT_BYTES

from opencode_rubrics.reward_file import Verdict, read_verdict
from opencode_rubrics.rubric import AnyTrace, Rubric, RubricConfig, note_unreadable, task_field
from opencode_rubrics.staged_tests import StagedTests, TestRun, VerifierBox, run_tests
from opencode_rubrics.swe.reader import ReaderError, reader
from opencode_rubrics.swe.tree import TreeError

_SECONDS = 300.0
_PACK = f"""cd -- "$1" 2>/dev/null && {{ [ -e "./$2" ] || [ -L "./$2" ]; }} || exit {FileState.ABSENT:d}
{{ tar -cf - -- "$2" || : >"$3.failed"; }} | head -c "$4" >"$3" && [ ! -e "$3.failed" ]"""
_CLEAR = 'workdir=$1; shift; rm -rf -- "$@" && mkdir -p -- "$workdir"'


class ArtifactProblem(Exception):
    """What the agent left cannot be carried; the message says why."""


async def carry_artifacts(paths: Sequence[str], origin: tuple[vf.Runtime, str], target: tuple[vf.Runtime, str]) -> None:
    """Put what is at `paths` and below /logs/artifacts in one sandbox at the same paths of another.

    A path that is missing is removed in the other, too. A sandbox is named with its work directory.

    Raises:
        ArtifactProblem: what the agent left is too large, leads outside, or cannot be read.
        ScoringError: the other sandbox could not take them.
    """
    (runtime, workdir), (box, there) = origin, target
    roots = [*dict.fromkeys(PurePosixPath(workdir, path) for path in (ARTIFACTS_DIR, *paths))]
    packed: dict[PurePosixPath, bytes] = {}
    with scoring_of(runtime).agents_time():
        try:
            for root in roots:
                found = await _packed(runtime, root, MAX_ARTIFACT_BYTES - sum(map(len, packed.values())))
                packed |= {} if found is None else {root: found}
            async with AsyncExitStack() as stack:
                reading = await stack.enter_async_context(reader()) if packed else None
                for root, archive in packed.items():
                    assert reading is not None
                    packed[root] = (await reading.ask("artifact", archive=archive, name=root.name))["packed"]
        except (ReaderError, TreeError) as error:
            await require_alive(runtime, "collecting artifacts")
            raise ArtifactProblem(f"the artifacts cannot be carried: {error}") from error
    failure = "the verifier's sandbox could not take the artifacts"
    argv = ["sh", "-c", _CLEAR, "clear", there, *map(str, roots)]
    await run_checked(box, argv, failure, seconds=_SECONDS, error=ScoringError)
    for root, archive in packed.items():
        await unpack_archive(box, archive, str(root.parent), failure=failure, error=ScoringError)


async def _packed(runtime: vf.Runtime, root: PurePosixPath, most: int) -> bytes | None:
    """A tar archive of what is at `root`, unread; None if nothing is. A `TreeError` if it cannot be packed, or takes
    more bytes."""
    place = f"/tmp/.{uuid.uuid4().hex}"
    argv = ["sh", "-c", _PACK, "pack", str(root.parent), root.name, place, str(most + 1)]
    done = await run_for(runtime, argv, _SECONDS, "artifacts cannot be collected")
    if done.exit_code == FileState.ABSENT:
        return None
    found = await read_bounded(runtime, place, most)
    if done.exit_code or isinstance(found, FileState):
        why = found.name.lower() if isinstance(found, FileState) else done.stderr.strip()[-300:]
        raise TreeError(f"{root}: {why} (exit code {done.exit_code})")
    return found


logger = logging.getLogger("verifiers.v1.opencode_rubrics.task_tests")

INFO_KEY = "tests"
"""Where `trace.info` records the run of the tests."""


class TaskTestsConfig(RubricConfig):
    """Options of `TaskTestsRubric`."""

    type: Literal["task-tests"] = "task-tests"
    reward_key: str = Field("reward", min_length=1)
    """The name in `reward.json` whose number is the reward; the others become metrics."""
    reward_min: float = Field(0.0, allow_inf_nan=False)
    """The least that the tests may give; a number beyond the bounds is not a verdict."""
    reward_max: float = Field(1.0, allow_inf_nan=False)
    """The most that the tests may give."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.reward_min > self.reward_max:
            raise ValueError(f"reward_min {self.reward_min:g} is above reward_max {self.reward_max:g}; swap them")
        return self


class TaskTestsRubric(Rubric[TaskTestsConfig]):
    """Reward `solved`: the number that the task's tests write to `/logs/verifier/reward.json` or `reward.txt`. The run
    lands in `trace.info["tests"]`, further numbers of `reward.json` among the metrics."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `tests`; a `TaskError` if the task has none."""
        return {"tests": task_field(task, "tests", StagedTests, 'rubric "task-tests" needs a task with tests')}

    @vf.reward
    async def solved(self, task: vf.TaskData, tests: StagedTests, trace: AnyTrace, runtime: vf.Runtime) -> float:
        """The tests' number; a `ScoringError` if they give no verdict, not in an untouched copy of the sandbox
        either."""
        workdir = workdir_of(trace)
        if tests.box is None:
            exposed = task.agent_user in (None, "root", "0")
            run = await run_tests(runtime, tests, workdir, self._read_verdict, exposed=exposed)
        else:
            run = await self._run_apart(tests, tests.box, scoring_of(trace), runtime, workdir)
        record = trace.info[INFO_KEY] = run.record()
        if run.warning:
            logger.warning("task %s: %s", task_name(task), run.warning)
        if not run.verdict.problem:
            return run.verdict.reward
        record["problem"] = problem = await self._blamed(tests, scoring_of(trace), workdir, run.verdict.problem)
        note_unreadable(trace, "task-tests", run.verdict.problem)
        logger.warning("task %s: %s", task_name(task), problem)
        return 0.0

    def longest(self, task: vf.TaskData) -> float:
        """The tests may take their whole time."""
        tests = getattr(task, "tests", None)
        return tests.timeout if isinstance(tests, StagedTests) else 0.0

    async def _read_verdict(self, runtime: vf.Runtime) -> Verdict:
        return await read_verdict(runtime, self.config.reward_key, self.config.reward_min, self.config.reward_max)

    async def _run_apart(
        self, tests: StagedTests, box: VerifierBox, scoring: Scoring, runtime: vf.Runtime | None, workdir: str
    ) -> TestRun:
        """The tests in the sandbox of their own, with the artifacts of `runtime` where there is one."""
        there = box.workdir or workdir
        async with scoring.spare_box(BoxOrder(box.image, box.workdir, box.env)) as apart:
            if runtime is not None:
                try:
                    await carry_artifacts(box.artifacts, (runtime, workdir), (apart, there))
                except ArtifactProblem as error:
                    return TestRun(Verdict(problem=str(error)))
            return await run_tests(apart, tests, there, self._read_verdict, exposed=False)

    async def _blamed(self, tests: StagedTests, scoring: Scoring, workdir: str, problem: str) -> str:
        """Why the agent is to blame for a missing verdict; a `ScoringError` if it is not, or nobody can say."""
        async with scoring.control():
            if scoring.boxes is None:
                raise ScoringError(f"the tests gave no verdict: {problem}")
            if tests.box is None:
                async with scoring.spare_box() as copy:
                    again = await run_tests(copy, tests, workdir, self._read_verdict, exposed=False)
            else:
                again = await self._run_apart(tests, tests.box, scoring, None, workdir)
            if again.verdict.problem:
                raise ScoringError(
                    f"the tests give no verdict, in an untouched copy of the sandbox either: {again.verdict.problem}"
                )
        return f"no verdict, while an untouched copy of the sandbox gives one, so a reward of 0: {problem}"

    @vf.metric
    async def tests_numbers(self, trace: AnyTrace) -> dict[str, float]:
        """The further numbers that the tests gave, by their own names."""
        numbers: dict[str, float] = trace.info.get(INFO_KEY, {}).get("numbers", {})
        return numbers
