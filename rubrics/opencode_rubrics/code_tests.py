"""Scores a program or function by tests: what it prints or returns is compared with what the row expects.

Invariant: expected outputs stay on this machine. Each test of the answer, one bounded file, runs apart from the agent's
files and from every other test, and says what the program did, never whether that was right. A program that fails,
hangs or dies fails its test; a test that could not be run is an error of the rollout.
"""

import asyncio
import builtins
import json
import re
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, Literal, Self

import verifiers.v1 as vf
from pydantic import ByteSize, Field, model_validator
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.interface import AgentPrograms, ProgramBatch, ProgramEnd, ProgramLimits
from rollout_sandbox.programs import program_text
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded, read_bounded_text
from rollout_sandbox.toolbox.checked_run import run_checked
from rollout_sandbox.toolbox.command import run_command
from rollout_sandbox.toolbox.files import upload_bundle
from rollout_sandbox.toolbox.scoring import end_agent, scoring_of
from rollout_sandbox.toolbox.scoring_home import scoring_home
from rollout_sandbox.toolbox.workdir import in_workdir

from opencode_rubrics.code_problem import CodeTest, CodeTests, same_output, same_result
from opencode_rubrics.rubric import AnyTrace, NeutralAnswer, Rubric, RubricConfig, task_field

CODE_TESTS_KEY = "code_tests"
"""Where `trace.info` says what each test did."""

_CALLER = "call_function.py"
_BINARY = "compiled"
_CONTROL, _CONTROL_TEST = b"def f(x):\n    return x\n", CodeTest(input=[7], output=7)
_TAIL_CHARS = 300
_MAX_ANSWER_BYTES = 256 << 10
"""A larger program has failed ("oversized")."""
_MAX_OUTPUT = 1 << 20
"""The most bytes that one test may print beyond twice what is expected."""
_GRACE_S = 60.0

# LiveCodeBench, APPS and TACO import all names of these modules, LeetCode's problems those of nine of them; their
# references name `pairwise`, `inf` or `List` without an import. All their graders raise the limit of recursion.
# In the order in which they are imported: of names that two have, the later one's counts, as there.
_MODULES = (
    *("string", "re", "datetime", "typing", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json"),
)
_NEWER = {"batched": "itertools", "fma": "math", "sumprod": "math"}
"""Names that the sandbox's Python may have and this one may lack."""
_LIBRARIES = (("numpy", "np"), ("pandas", "pd"))
_RECURSION = "import sys; sys.setrecursionlimit(600000)"
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:[ \t]*\.)?")
_FUTURE = re.compile(r"^from __future__ import", re.MULTILINE)


def _public(module: str) -> list[str]:
    found = import_module(module)
    return [name for name in getattr(found, "__all__", vars(found)) if not name.startswith("_")]


PROMISED = {name: module for module in _MODULES for name in _public(module) if not hasattr(builtins, name)} | _NEWER
"""The module of each name that an answer may use without importing it."""


class CodeTestsConfig(RubricConfig):
    """Options of `CodeTestsRubric`."""

    type: Literal["code-tests"] = "code-tests"
    answer_path: str = Field("answer.py", pattern=r"[^/]$")
    """Path in the sandbox of the program that is tested, below the work directory unless it is absolute."""
    command: list[str] = Field(["python3", "-I", "-B", "{program}"], min_length=1)
    """How it is run: `{program}` stands for its file, `{binary}` for what `compile_command` makes."""
    compile_command: list[str] = []
    """How it is compiled once before its tests, as `["g++", "-O2", "-o", "{binary}", "{program}"]`."""
    test_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds of one test, and of compiling."""
    total_timeout: float = Field(300.0, gt=0, allow_inf_nan=False)
    """Seconds of all tests of one answer; those that are not reached have failed."""
    max_memory: ByteSize = Field(ByteSize(4 << 30), ge=64 << 20)
    """Memory of one test."""
    max_processes: int = Field(128, ge=16)
    """Processes and threads of one test at once."""
    tolerance: float = Field(1e-9, ge=0, allow_inf_nan=False)
    """How far decimals of standard output may be off, where nothing but decimals is expected."""
    relative_tolerance: float = Field(1e-6, ge=0, allow_inf_nan=False)
    """The same as a share of what is expected; the larger of the two holds. Whole numbers must be equal."""
    strict: bool = False
    """Compare output as text, apart from white space around it, and results as they are, also where the dataset may
    have wrapped them in one more list or written them as text."""
    pass_rate_weight: float = Field(0.0, ge=0, le=1)
    """The share of the reward that is the share of tests passed; the rest is for passing all."""

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        """A command that does not name the answer would run something else, and every answer would fail."""
        if self.compile_command and not {"{program}", "{binary}"} <= {*self.compile_command}:
            raise ValueError("compile_command must hold {program} and {binary}, each as a word of its own")
        runs = "{binary}" if self.compile_command else "{program}"
        if runs not in self.command:
            raise ValueError(f"command must hold {runs} as a word of its own, which is what the answer is run as")
        return self


@dataclass(frozen=True)
class _Verdict:
    """Holds what became of one test."""

    passed: bool
    reason: str
    stderr: str = ""


def _batch(argv: list[str], files: dict[str, bytes], tests: CodeTests) -> tuple[ProgramBatch, list[str]]:
    """Return how the tests of one answer are run; a test of a function has a key that no other test's program knows."""
    if tests.function is None:
        return ProgramBatch(argv, files, [str(test.input) for test in tests.tests]), [""] * len(tests.tests)
    keys = [secrets.token_hex(16) for _ in tests.tests]
    given = [test.input if isinstance(test.input, str) else f"*{test.input!r}" for test in tests.tests]
    inputs = [f"{key}\n{arguments}" for key, arguments in zip(keys, given, strict=True)]
    caller = program_text(_CALLER, "opencode_rubrics").encode()
    return ProgramBatch(argv, {**files, _CALLER: caller}, inputs), keys


class CodeTestsRubric(Rubric[CodeTestsConfig]):
    """Rewards `passed` (all tests) and `pass_rate` (the share of them), of the task's `code_tests`. What each test did
    lands in `trace.info["code_tests"]`."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `tests`; a `TaskError` if there are none, a `ScoringError` if the answer cannot have what they call."""
        missing = 'rubric "code-tests" needs a task with code tests: name their column (tests_key)'
        tests = task_field(task, "code_tests", CodeTests, missing)
        if tests.function is not None and not self.config.answer_path.endswith(".py"):
            raise ScoringError(f"tests call the function {tests.function!r}, which only a Python answer can have")
        return {"tests": tests}

    def neutral(self, task: vf.TaskData) -> NeutralAnswer:
        """A program of one line, or the function."""
        function = getattr(getattr(task, "code_tests", None), "function", None)
        code = f"def {function}(*given):\n    return 0\n" if str(function).isidentifier() and function else "print(0)\n"
        return replace(super().neutral(task), reply=code)

    def weight(self, name: str, scorer: Callable[..., Any]) -> float:
        """The share of `pass_rate`, and the rest."""
        share = self.config.pass_rate_weight
        return share if name == "pass_rate" else 1 - share

    @vf.reward
    async def passed(self, tests: CodeTests, trace: AnyTrace, runtime: vf.Runtime) -> dict[str, float]:
        """`passed`, 1.0 if every test passed, and `pass_rate`, the share of them."""
        verdicts = await self._verdicts(tests, trace, runtime)
        trace.info[CODE_TESTS_KEY] = [asdict(verdict) for verdict in verdicts]
        rate = sum(verdict.passed for verdict in verdicts) / len(verdicts)
        return {"passed": float(rate == 1), "pass_rate": rate}

    @vf.metric
    async def num_test_cases(self, trace: AnyTrace) -> float:
        return float(len(trace.info.get(CODE_TESTS_KEY, ())))

    @vf.metric
    async def tests_timed_out(self, trace: AnyTrace) -> float:
        """Return how many of them took too long, or were not reached."""
        return float(
            sum(verdict["reason"] in ("timeout", "not reached") for verdict in trace.info.get(CODE_TESTS_KEY, ()))
        )

    def longest(self, task: vf.TaskData) -> float:
        """Every test may take its whole time, up to the time of all."""
        tests = getattr(task, "code_tests", None)
        count = len(tests.tests) if isinstance(tests, CodeTests) else 0
        compiling = self.config.test_timeout if self.config.compile_command else 0.0
        return compiling + min(self.config.total_timeout, count * self.config.test_timeout)

    async def _verdicts(self, tests: CodeTests, trace: AnyTrace, runtime: vf.Runtime) -> list[_Verdict]:
        path = in_workdir(trace, self.config.answer_path)
        await end_agent(runtime)
        found = await read_bounded_text(runtime, path, _MAX_ANSWER_BYTES)
        if isinstance(found, FileState) or not found.strip():
            reason = found.name.lower() if isinstance(found, FileState) else "empty"
            return [_Verdict(False, reason)] * len(tests.tests)
        async with self._place(tests, trace, runtime) as programs:
            with scoring_of(trace).agents_time():
                return await self._tested(tests, PurePosixPath(path).name, found, programs)

    @asynccontextmanager
    async def _place(self, tests: CodeTests, trace: AnyTrace, runtime: vf.Runtime) -> AsyncIterator[AgentPrograms]:
        """Yield where programs run: beside the agent's sandbox if that can be, else in one of its kind."""
        if (place := abilities_of(runtime).agent_programs(self._limits(tests))) is not None:
            async with place as programs:
                yield programs
        else:
            async with scoring_of(trace).second_sandbox() as box:
                yield _BoxPrograms(box)

    def _limits(self, tests: CodeTests) -> ProgramLimits:
        config = self.config
        # As a function's result is written: six bytes for a letter that is not of ASCII.
        longest = max(len(json.dumps(test.output)) for test in tests.tests)
        output = _MAX_OUTPUT + 2 * longest
        return ProgramLimits(config.test_timeout, config.total_timeout, config.max_memory, config.max_processes, output)

    async def _tested(self, tests: CodeTests, name: str, code: str, programs: AgentPrograms) -> list[_Verdict]:
        limits = self._limits(tests)
        files = {name: (with_imports(code) if name.endswith(".py") else code).encode()}
        if self.config.compile_command:
            argv = self._argv(self.config.compile_command, name)
            (compiled,) = await programs.run(ProgramBatch(argv, files, kept=_BINARY), limits)
            if compiled.kept is None:
                await self._require_program(argv[0], programs, limits)
                return [_Verdict(False, "not compiled", compiled.err[-_TAIL_CHARS:])] * len(tests.tests)
            files = {_BINARY: compiled.kept}
        batch, keys = _batch(self._command(name, tests.function, exact=tests.exact), files, tests)
        ends = await programs.run(batch, limits)
        if all(end.status.startswith("exit ") and end.status != "exit 0" for end in ends):
            await self._require_program(batch.argv[0], programs, limits)
            if name.endswith(".py"):
                await self._require_control(name, programs, limits)
        judged = partial(self._judged, exact=tests.exact)
        # Beside the event loop: what programs print may be large.
        return await asyncio.to_thread(lambda: list(map(judged, tests.tests, keys, ends)))

    def _command(self, name: str, function: str | None, *, exact: bool = False) -> list[str]:
        if function is None:
            return self._argv(self.config.command, name)
        return [*self._argv(self.config.command, _CALLER), name, function, *(["exact"] if exact else [])]

    def _argv(self, template: Sequence[str], name: str) -> list[str]:
        places = {"{program}": name, "{binary}": f"./{_BINARY}"}
        return [places.get(word, word) for word in template]

    async def _require_program(self, wanted: str, programs: AgentPrograms, limits: ProgramLimits) -> None:
        """Refuse to judge, by a `ScoringError`, where the sandbox lacks the program `wanted`."""
        looked = ProgramBatch(["sh", "-c", 'command -v -- "$1"', "sh", wanted])
        if not wanted.startswith("./") and (await programs.run(looked, limits))[0].status != "exit 0":
            raise ScoringError(
                f"the sandbox has no program {wanted!r} to run answers with: choose an image that has it, or another "
                "command (--env.taskset.task.rubric.command)"
            )

    async def _require_control(self, name: str, programs: AgentPrograms, limits: ProgramLimits) -> None:
        """Refuse to judge, by a `ScoringError`, where a right program fails as well."""
        tests = CodeTests(function="f", tests=[_CONTROL_TEST], total=1)
        batch, (key,) = _batch(self._command(name, "f"), {name: _CONTROL}, tests)
        (end,) = await programs.run(batch, limits)
        if not self._judged(_CONTROL_TEST, key, end).passed:
            raise ScoringError(
                f"no Python answer can be tested in the sandbox ({end.status}): {end.err[-_TAIL_CHARS:]}"
            )

    def _judged(self, test: CodeTest, key: str, end: ProgramEnd, *, exact: bool = False) -> _Verdict:
        said, strict = end.err[-_TAIL_CHARS:], self.config.strict
        if end.status != "exit 0":
            return _Verdict(False, end.status, said)
        if not key:
            tolerances = self.config.tolerance, self.config.relative_tolerance
            right = same_output(end.out, str(test.output), *tolerances, strict=strict)
            return _Verdict(right, "same" if right else "different", said)
        head, _, line = end.out.partition(key)
        try:
            right = not head and same_result(json.loads(line), test, exact=exact, strict=strict)
        except (ValueError, RecursionError):
            return _Verdict(False, "no result", said)
        return _Verdict(right, "same" if right else "different", said)


class _BoxPrograms:
    """Runs programs of the agent's in a second sandbox of its rollout, which has never held the agent, each through
    `run-agent-code`, which keeps it apart from what runs, measures and reports there, and from the others."""

    def __init__(self, runtime: vf.Runtime) -> None:
        self._runtime = runtime

    async def run(self, batch: ProgramBatch, limits: ProgramLimits) -> list[ProgramEnd]:
        """Return what the program did with each input; a `ScoringError` if programs cannot be kept apart in it."""
        if self._runtime.type == "subprocess":
            raise ScoringError("code tests would run on this machine itself: leave out --env.sandbox.confine false")
        async with scoring_home(self._runtime, "/", exposed=False) as home:
            if not home.directory:
                raise ScoringError(f"there is no place for code tests in the sandbox: {home.obstacle or home.problem}")
            place = f"{home.directory}/tmp/{secrets.token_hex(4)}"
            bundle = {f"files/{name}": data for name, data in batch.files.items()}
            bundle |= {f"inputs/{number}": given.encode() for number, given in enumerate(batch.inputs, start=1)}
            bundle["run.sh"] = program_text("run_programs.sh", "opencode_rubrics").encode()
            await upload_bundle(self._runtime, bundle, place, failure="code tests could not be sent")
            await run_checked(self._runtime, ["mkdir", "-p", f"{place}/files"], "code tests could not be sent")
            numbers: list[object] = [len(batch.inputs), f"{limits.seconds:g}", int(limits.total_seconds)]
            numbers += [limits.memory_bytes >> 10, limits.processes, limits.output_bytes]
            ran = await run_command(
                self._runtime,
                shlex.join(["sh", f"{place}/run.sh", *map(str, numbers), batch.kept, *batch.argv]),
                workdir="/",
                timeout=min(limits.total_seconds, limits.seconds * len(batch.inputs)) + _GRACE_S,
                environment=home.environment,
                tools=home.tools,
                shell=home.shell,
            )
            found = await read_bounded(self._runtime, f"{place}/results", 256 << 20)
        if not ran.ok or isinstance(found, FileState):
            raise ScoringError(f"code tests could not be run: {home.failure or ran.ending()}")
        ends = list(_ends(found))
        if len(ends) != len(batch.inputs):
            raise ScoringError(f"{len(ends)} of {len(batch.inputs)} code tests were reported: {ran.ending()}")
        return ends


def _ends(data: bytes) -> Iterator[ProgramEnd]:
    while data:
        line, _, data = data.partition(b"\n")
        *lengths, status = line.decode().split(" ", 3)
        parts: list[bytes | None] = []
        for length in map(int, lengths):
            parts.append(data[:length] if length >= 0 else None)
            data = data[max(0, length) :]
        out, err = ((part or b"").decode(errors="replace") for part in parts[:2])
        yield ProgramEnd(status, out, err, parts[2])


def with_imports(code: str) -> str:
    """A Python answer behind one line that imports what problem sets promise, as far as the answer mentions it, and
    lets it recurse deeply. Without a byte order mark; as it is where it must come first itself."""
    code = code.removeprefix("\ufeff")
    if _FUTURE.search(code):
        return code
    found = _WORD.findall(code)
    looked_into = {word.rstrip(" \t.") for word in found if word.endswith(".")}
    names = {word for word in found if not word.endswith(".")} | looked_into.difference(_MODULES)
    # Whole modules: the sandbox's Python may lack a name that this one has. Then builtins get their names back.
    whole = [module for module in _MODULES if any(PROMISED.get(name) == module for name in names)]
    stars = [f"from {module} import *" for module in (*whole, *(["builtins"] if whole else []))]
    # `datetime`, `bisect`, `copy`, `random`: a module where the answer looks into it, else what is in there.
    modules = [f"import {name}" for name in _MODULES if name in looked_into or name in names.difference(PROMISED)]
    # A library may be missing, and its short name may be the answer's own.
    tried = [f"import {library} as {name}" for library, name in _LIBRARIES if name in looked_into]
    guarded = [f"exec('try: {statement}\\nexcept ImportError: pass')" for statement in tried]
    return "; ".join([_RECURSION, *stars, *modules, *guarded]) + "\n" + code
