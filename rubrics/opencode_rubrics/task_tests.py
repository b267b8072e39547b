"""Scores a rollout by the test script of its task, which is put into a sandbox only when it scores.

As Harbor and Terminal-Bench 2 have it: `/tests/test.sh` runs in the work directory and writes its reward below
`/logs/verifier`. Invariant: both are made new after the agent ended, so nothing that it planted is run or read. In a
container whose agent is root the tests run programs of the image that it can have replaced, and nothing is promised.

A script that gives no verdict is run once more in an untouched copy of the sandbox. Gives it one there, then the agent
took it away, and the reward is 0; gives it none there either, then the tests are broken, and nothing is scored.
"""

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

import verifiers.v1 as vf
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from rollout_sandbox.compat import abilities_of, lift_network
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.told import task_name
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import require_alive, run_checked, run_for
from rollout_sandbox.toolbox.command import CommandResult, run_command
from rollout_sandbox.toolbox.files import unpack_archive, unpack_new
from rollout_sandbox.toolbox.scoring import Scoring, SecondSandboxOptions, scoring_of
from rollout_sandbox.toolbox.scoring_home import ScoringHome, scoring_home
from rollout_sandbox.toolbox.workdir import workdir_of
from verifiers.v1.utils.artifacts import ARTIFACTS_DIR, MAX_ARTIFACT_BYTES

from opencode_rubrics.errors import ReaderError
from opencode_rubrics.reward_file import BoundedRewardConfig, RewardFileVerdict, read_verdict
from opencode_rubrics.rubric import AnyTrace, Rubric, note_unreadable, task_field
from opencode_rubrics.swe.file_tree import TreeError
from opencode_rubrics.swe.reader import reader

logger = logging.getLogger("verifiers.v1.opencode_rubrics.task_tests")

TESTS_KEY = "tests"
"""Where `trace.info` records the run of the tests."""

_CODES = {126: "which cannot be run", 127: "which was not found"}
_LACKS = re.compile(
    r"command not found"  # bash, zsh, also through `sudo`
    r"|: (?:\d+|line \d+): \S+: (?:not found|Permission denied)"  # dash, busybox; bash where it cannot be run
    r"|\b(?:ba|da|a|k|z)?sh: \S+: (?:not found|Permission denied)"  # of one line (`sh -c`)
    r"|: bad interpreter: |: cannot execute"
    r"|\benv: (?:can't execute )?\S+: (?:No such file or directory|Permission denied)"
)
_MAKE, _MAKE_FAILED = re.compile(r"\bmake(?:\[\d+\])?: "), re.compile(r"(?<=.) Error 12[67]\b")

TESTS_DIRECTORY = "/tests"
SCRIPT = f"{TESTS_DIRECTORY}/test.sh"
_DEFAULT_SECONDS = 900.0
_SECONDS = 300.0
_PACK = f"""cd -- "$1" 2>/dev/null && {{ [ -e "./$2" ] || [ -L "./$2" ]; }} || exit {FileState.ABSENT:d}
{{ tar -cf - -- "$2" || : >"$3.failed"; }} | head -c "$4" >"$3" && [ ! -e "$3.failed" ]"""
_CLEAR = 'workdir=$1; shift; rm -rf -- "$@" && mkdir -p -- "$workdir"'
# As Harbor does: not every checkout has it executable, and it names its own interpreter.
_RUN_SCRIPT = f"chmod +x {SCRIPT} 2>/dev/null; {SCRIPT}"


def lacked_program(result: CommandResult) -> str:
    """Return what says that a program was lacking, by its exit code or what a shell wrote; empty if nothing does. A
    script that goes on after such a line, and writes a verdict, has judged less than it means to. Only the end of a
    long output is known."""
    lines = (line for text in (result.stderr, result.stdout) for line in text.split("\n"))
    found = next(filter(_lacks, lines), None)
    code = "" if result.timed_out else _CODES.get(result.exit_code, "")
    told = [] if found is None else [found.strip()[:200]]
    if code:
        told.insert(0, f"exit code {result.exit_code}, of a program {code}")
    return ": ".join(told)


def _lacks(line: str) -> bool:
    """Whether a line says that a program was lacking, in time linear in its length."""
    if _LACKS.search(line):
        return True
    make = _MAKE.search(line)
    return make is not None and _MAKE_FAILED.search(line, make.end()) is not None


class VerifierSandbox(BaseModel):
    """A sandbox of the tests' own."""

    model_config = ConfigDict(frozen=True)

    image: str | None = None
    """Container image; None is the agent's."""
    workdir: str | None = None
    """Work directory; None is the agent's."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of every command in it."""
    artifacts: list[str] = Field(default_factory=list)
    """Paths that travel from the agent's sandbox, beside /logs/artifacts."""


class StagedTests(BaseModel):
    """The tests of one task; the field `tests` of its data."""

    model_config = ConfigDict(frozen=True)

    archive: str | None = None
    """What becomes /tests (`pack_directory`); None where the verifier's image holds it."""
    timeout: float = Field(_DEFAULT_SECONDS, gt=0, allow_inf_nan=False)
    """Seconds that the script has."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the script."""
    box: VerifierSandbox | None = None
    """The sandbox of its own; None scores where the agent worked."""


@dataclass(frozen=True)
class TestRun:
    """One run of the tests; the `verdict` of a run that gave none names the problem."""

    __test__ = False  # no test of pytest's

    verdict: RewardFileVerdict
    script: CommandResult | None = None
    """None if it never ran."""

    @property
    def warning(self) -> str:
        """That the script lacked a program; empty if nothing says so."""
        missing = "" if self.script is None else lacked_program(self.script)
        return f"{SCRIPT} lacked a program, so its verdict may be the sandbox's: {missing}" if missing else ""

    def record(self) -> dict[str, JsonValue]:
        """The run as JSON, for `trace.info`."""
        script = {} if self.script is None else self.script.record()
        numbers: dict[str, JsonValue] = dict(self.verdict.others)
        return {**script, "problem": self.verdict.problem, "numbers": numbers, "warning": self.warning}


def require_box(runtime: vf.Runtime) -> None:
    """Refuse, by a `TaskError`, to stage tests among the files of this machine."""
    if runtime.type == "subprocess" and abilities_of(runtime).trusted_python is None:
        raise vf.TaskError(
            f"the task's tests replace {TESTS_DIRECTORY}, which would be this machine's own: leave out "
            "--env.sandbox.confine false, or choose a container (--env.agent.runtime.type)"
        )


class TaskTestsConfig(BoundedRewardConfig):
    """Options of `TaskTestsRubric`."""

    type: Literal["task-tests"] = "task-tests"
    reward_key: str = Field("reward", min_length=1)
    """The name in `reward.json` whose number is the reward; the others become metrics."""


class TaskTestsRubric(Rubric[TaskTestsConfig]):
    """Reward `solved`: the number that the task's tests write to `/logs/verifier/reward.json` or `reward.txt`. The run
    lands in `trace.info["tests"]`, further numbers of `reward.json` among the metrics."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `tests`; a `TaskError` if the task has none."""
        return {"tests": task_field(task, "tests", StagedTests, 'rubric "task-tests" needs a task with tests')}

    @vf.reward
    async def solved(self, task: vf.TaskData, tests: StagedTests, trace: AnyTrace, runtime: vf.Runtime) -> float:
        """The tests' number; a `ScoringError` if they give none in an untouched copy of the sandbox either."""
        workdir = workdir_of(trace)
        if tests.box is None:
            exposed = task.agent_user in (None, "root", "0")
            run = await self._run(runtime, tests, workdir, exposed=exposed)
        else:
            run = await self._run_apart(tests, tests.box, scoring_of(trace), runtime, workdir)
        record = trace.info[TESTS_KEY] = run.record()
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

    async def _run(self, runtime: vf.Runtime, tests: StagedTests, workdir: str, *, exposed: bool) -> TestRun:
        """Stage the tests, run their script and read what it says, in a sandbox without any process of the agent's;
        `exposed` if an agent that was root can have replaced programs of it."""
        require_box(runtime)
        await lift_network(runtime)
        async with scoring_home(runtime, workdir, exposed=exposed) as home:
            problem = home.problem or home.obstacle
            if not problem and tests.archive is not None:
                try:
                    await unpack_new(runtime, tests.archive, TESTS_DIRECTORY, ScoringError)
                except ScoringError as error:
                    problem = str(error)
            if problem:
                return TestRun(RewardFileVerdict(problem=f"the tests could not be staged: {problem}"))
            script = await _run_script(runtime, tests, workdir, home)
        if home.failure:
            raise ScoringError(f"the tests run agent code, and it could not be kept apart: {home.failure}")
        if script.timed_out:
            return TestRun(RewardFileVerdict(problem=f"{SCRIPT} did not end within {tests.timeout:g} s"), script)
        verdict = await read_verdict(runtime, self.config.reward_key, self.config.reward_min, self.config.reward_max)
        if verdict.problem:
            verdict = RewardFileVerdict(problem=f"{verdict.problem} ({SCRIPT}: {script.ending()})")
        return TestRun(verdict, script)

    async def _run_apart(
        self, tests: StagedTests, box: VerifierSandbox, scoring: Scoring, runtime: vf.Runtime | None, workdir: str
    ) -> TestRun:
        """The tests in the sandbox of their own, with the artifacts of `runtime` where there is one."""
        there = box.workdir or workdir
        async with scoring.second_sandbox(SecondSandboxOptions(box.image, box.workdir, box.env)) as apart:
            if runtime is not None:
                try:
                    await _carry_artifacts(box.artifacts, (runtime, workdir), (apart, there))
                except TreeError as error:
                    return TestRun(RewardFileVerdict(problem=str(error)))
            return await self._run(apart, tests, there, exposed=False)

    async def _blamed(self, tests: StagedTests, scoring: Scoring, workdir: str, problem: str) -> str:
        """Return why the agent is to blame for a missing verdict; a `ScoringError` if it is not, or nobody can say."""
        async with scoring.control():
            if scoring.boxes is None:
                raise ScoringError(f"the tests gave no verdict: {problem}")
            if tests.box is None:
                async with scoring.second_sandbox() as copy:
                    again = await self._run(copy, tests, workdir, exposed=False)
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
        numbers: dict[str, float] = trace.info.get(TESTS_KEY, {}).get("numbers", {})
        return numbers


async def _run_script(runtime: vf.Runtime, tests: StagedTests, workdir: str, home: ScoringHome) -> CommandResult:
    trusted = abilities_of(runtime).trusted_python is not None
    # Without the XDG directories: installers put programs below them where they are set, and scripts look at HOME.
    own = {name: value for name, value in home.environment.items() if trusted and not name.startswith("XDG_")}
    return await run_command(
        runtime,
        _RUN_SCRIPT,
        workdir=workdir,
        timeout=tests.timeout,
        environment={**own, **tests.env},
        # In a container our tools would stand before those of the image, which the script may have been written for.
        tools=home.tools if trusted else "",
        shell=home.shell,
    )


async def _carry_artifacts(
    paths: Sequence[str], origin: tuple[vf.Runtime, str], target: tuple[vf.Runtime, str]
) -> None:
    """Put what is at `paths` and below /logs/artifacts in one sandbox at the same paths of another; each is named with
    its work directory. A path that is missing is removed in the other, too. A `TreeError` if what the agent
    left is too large, leads outside, or cannot be read."""
    (runtime, workdir), (box, there) = origin, target
    roots = [*dict.fromkeys(PurePosixPath(workdir, path) for path in (ARTIFACTS_DIR, *paths))]
    packed: dict[PurePosixPath, bytes] = {}
    with scoring_of(runtime).agents_time():
        try:
            for root in roots:
                found = await _packed(runtime, root, MAX_ARTIFACT_BYTES - sum(map(len, packed.values())))
                packed |= {} if found is None else {root: found}
            if packed:
                async with reader() as reading:
                    for root, archive in packed.items():
                        packed[root] = (await reading.ask("artifact", archive=archive, name=root.name))["packed"]
        except (ReaderError, TreeError) as error:
            await require_alive(runtime, "collecting artifacts")
            raise TreeError(f"the artifacts cannot be carried: {error}") from error
    failure = "the verifier's sandbox could not take the artifacts"
    argv = ["sh", "-c", _CLEAR, "clear", there, *map(str, roots)]
    await run_checked(box, argv, failure, seconds=_SECONDS, error=ScoringError)
    for root, archive in packed.items():
        await unpack_archive(box, archive, str(root.parent), failure=failure, error=ScoringError)


async def _packed(runtime: vf.Runtime, root: PurePosixPath, most: int) -> bytes | None:
    """A tar archive of what is at `root`; None if nothing is. A `TreeError` if it cannot be packed, or is larger."""
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
