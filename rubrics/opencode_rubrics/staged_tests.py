"""A test script that is put into a sandbox only when it scores, run there, and read for its verdict.

As Harbor and Terminal-Bench 2 have it: `/tests/test.sh` runs in the work directory and writes its reward below
`/logs/verifier`.
Invariant: `/tests` and `/logs/verifier` are made new after the agent ended, so nothing that it planted is run or read.
In the confined sandbox, where the agent's user is the tests' own, they get a home of their own as well; in a container
whose agent is root the tests run programs of the image that it can have replaced, and nothing is promised.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import verifiers.v1 as vf
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from rollout_sandbox.compat import lift_network
from rollout_sandbox.toolbox.archives import unpack_new
from rollout_sandbox.toolbox.command import CommandResult, run_command
from rollout_sandbox.toolbox.processes import TrustedSystem
from rollout_sandbox.toolbox.scoring import ScoringError
from rollout_sandbox.toolbox.scoring_home import ScoringHome, scoring_home

from opencode_rubrics.reward_file import Verdict

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
DEFAULT_SECONDS = 900.0

ReadVerdict = Callable[[vf.Runtime], Awaitable[Verdict]]

# As Harbor does: not every checkout has it executable, and it names its own interpreter.
_RUN_SCRIPT = f"chmod +x {SCRIPT} 2>/dev/null; {SCRIPT}"


def lacked_program(result: CommandResult) -> str:
    """What says that a program was lacking, by its exit code or what a shell wrote; empty if nothing does. A script
    that goes on after such a line, and writes a verdict, has judged less than it means to. Only the end of a long
    output is known."""
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


class VerifierBox(BaseModel):
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
    timeout: float = Field(DEFAULT_SECONDS, gt=0, allow_inf_nan=False)
    """Seconds that the script has."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of the script."""
    box: VerifierBox | None = None
    """The sandbox of its own; None scores where the agent worked."""


@dataclass(frozen=True)
class TestRun:
    """One run of the tests; the `verdict` of a run that gave none names the problem."""

    __test__ = False  # no test of pytest's

    verdict: Verdict
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
    if runtime.type == "subprocess" and not isinstance(runtime, TrustedSystem):
        raise vf.TaskError(
            f"the task's tests replace {TESTS_DIRECTORY}, which would be this machine's own: leave out "
            "--env.sandbox.confine false, or choose a container (--env.agent.runtime.type)"
        )


async def run_tests(
    runtime: vf.Runtime, tests: StagedTests, workdir: str, read: ReadVerdict, *, exposed: bool
) -> TestRun:
    """Stage the tests, run their script, and `read` what it says, in a sandbox without any process of the agent's;
    `exposed` if an agent that was root can have replaced programs of it. A `ScoringError` if the script runs agent
    code, which cannot be kept apart from it there, a `TaskError` if the sandbox is this machine itself."""
    require_box(runtime)
    await lift_network(runtime)
    async with scoring_home(runtime, workdir, exposed=exposed) as home:
        problem = home.problem or home.unready
        if not problem and tests.archive is not None:
            try:
                await unpack_new(runtime, tests.archive, TESTS_DIRECTORY, ScoringError)
            except ScoringError as error:
                problem = str(error)
        if problem:
            return TestRun(Verdict(problem=f"the tests could not be staged: {problem}"))
        script = await _run_script(runtime, tests, workdir, home)
    if home.failure:
        raise ScoringError(f"the tests run agent code, and it could not be kept apart: {home.failure}")
    if script.timed_out:
        return TestRun(Verdict(problem=f"{SCRIPT} did not end within {tests.timeout:g} s"), script)
    verdict = await read(runtime)
    if verdict.problem:
        verdict = Verdict(problem=f"{verdict.problem} ({SCRIPT}: {script.ending()})")
    return TestRun(verdict, script)


async def _run_script(runtime: vf.Runtime, tests: StagedTests, workdir: str, home: ScoringHome) -> CommandResult:
    trusted = isinstance(runtime, TrustedSystem)
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
