"""The right solution of a task, where the dataset has one: how it is found, how it is applied, and near misses of it.

Applying a gold solution does in the sandbox what an agent could have done there, and nothing else; what it
brings along (the patch, the solution's directory) is gone afterwards. For `vf-validate` nothing of a row runs on this
machine itself beyond what that has run there before it asks.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, run_command, upload_bundle, workdir_of
from pydantic import JsonValue
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.files import pack_directory, unpack_new
from verifiers.v1.state import state_cls
from verifiers.v1.task import Task
from verifiers.v1.utils.decorators import invoke

from opencode_env.errors import GoldError

GOLD_COLUMNS = ("gold", "solution", "patch")
"""Columns that hold the right solution, unless an option names another."""
ANSWERED = ("answer", "hybrid-math", "remote-hybrid-math", "judge")
"""Rubrics for which the row's answer is the solution."""

_SCRIPTS = ("solution/solve.sh", "solution/solution.sh", "solution.sh")
"""Where task directories have theirs: Harbor, Terminal-Bench 2, Terminal-Bench."""
SOLUTION = "/solution"
"""Where a task directory's solution is while it is applied; the confined sandbox has to be made with it."""
_SOLVE = "chmod +x {0} 2>/dev/null; if [ -x {0} ]; then {0}; else sh {0}; fi"
_PATCH = re.compile(r"\A(?:diff --git |--- |Index: |From [0-9a-f]{40} )", re.MULTILINE)
_FIRST_DIGIT = re.compile(r"(?<![_^{\d])\d|(?<=[^_^]\{)\d")


@dataclass(frozen=True)
class GoldSolution:
    """One solution; its parts are applied in this order."""

    directory: Path | None = None
    """A directory that becomes /solution, and `script`, which is in it; without one, `script` is a command."""
    script: str = ""
    patch: str | None = None
    files: Mapping[str, str] | None = None
    """Contents by path, below the work directory unless absolute."""
    commands: Sequence[str] = ()
    answer: str | None = None
    """The answer file's content, and the last reply."""

    @property
    def texts(self) -> dict[str, str]:
        """Return what of it must not be in the agent's sight, by what it is called."""
        named = {f"gold file {path}": text for path, text in (self.files or {}).items()}
        named |= {f"gold command {number}": text for number, text in enumerate(self.commands, 1)}
        return named | ({"gold patch": self.patch} if self.patch else {})


def gold_of(
    data: Any, rubric: str, answer_path: str | None, column: str | None, directory: Path | None
) -> GoldSolution | None:
    """The gold solution of a task's data, an `OpenCodeTaskData`, or directory; None where there is none, a `GoldError`
    where the column holds something else. `rubric` is the `type` of the rubric that scores it, `answer_path` the file
    that this reads, if it reads one; without a column of the option's, `GOLD_COLUMNS` are looked for."""
    for script in [] if directory is None else [directory / name for name in _SCRIPTS]:
        if script.is_file():
            where = script.parent if script.parent != directory else None
            return GoldSolution(directory=where, script=script.name if where else script.read_text(encoding="utf-8"))
    problem = getattr(data, "swe", None)
    if column is None and problem is not None and problem.gold_patch:
        return GoldSolution(patch=problem.gold_patch)
    if column is None and rubric in ANSWERED and data.answer is not None:
        return GoldSolution(answer=data.answer)
    for name in (column,) if column else GOLD_COLUMNS:
        if (value := data.info.get(name)) not in (None, "", []):
            return _parsed(name, value, answer_path if rubric not in ANSWERED else None)
    return None if data.answer is None or data.verify else GoldSolution(answer=data.answer)


def _parsed(name: str, value: JsonValue, answer_path: str | None) -> GoldSolution:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return GoldSolution(files={path: str(text) for path, text in value.items()})
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return GoldSolution(commands=[str(text) for text in value])
    if not isinstance(value, str):
        meant = "write a command, a list of them, a patch, or files by path"
        raise GoldError(f'column "{name}" is not a solution: {meant}')
    if _PATCH.match(value):
        return GoldSolution(patch=value)
    return GoldSolution(commands=[value]) if answer_path is None else GoldSolution(files={answer_path: value})


def near_misses(gold: GoldSolution) -> Iterator[tuple[str, GoldSolution]]:
    """Solutions that are nearly this one and must not be rewarded, each with what it is called."""
    if gold.answer is not None and (changed := _other_answer(gold.answer)) is not None:
        yield f"the answer {changed!r}", replace(gold, answer=changed)
    if gold.files is not None and len(gold.files) == 1 and (path := next(iter(gold.files))).endswith(".py"):
        yield "a program that does nothing", replace(gold, files={path: "pass\n"})
    if gold.patch is not None:
        yield from ((name, replace(gold, patch=patch)) for name, patch in _without_a_hunk(gold.patch))


def _other_answer(answer: str) -> str | None:
    """The answer with its first digit changed, or with another letter where it is one of a choice."""
    if re.fullmatch(r"[A-E]", answer.strip()):
        return "ABCDEA"["ABCDE".index(answer.strip()) + 1]
    found = _FIRST_DIGIT.search(answer)
    if found is None:
        return None
    digit = "8" if found[0] == "9" else str(int(found[0]) + 1)
    return answer[: found.start()] + digit + answer[found.end() :]


def _without_a_hunk(patch: str) -> Iterator[tuple[str, str]]:
    """The patch without one of its hunks of code, for each of the first four, where it has several."""
    pieces = re.split(r"(?m)^(?=diff --git |@@ |--- .*\n\+\+\+ )", patch)
    hunks = [number for number, piece in enumerate(pieces) if piece.startswith("@@")]
    if len(hunks) < 2:
        return
    for number in hunks[:4]:
        left = [piece for index, piece in enumerate(pieces) if index != number]
        # A file's header without any hunk is not a patch.
        headers = ("diff --git ", "--- ")
        kept = [piece for at, piece in enumerate(left) if not piece.startswith(headers) or _has_hunk(left, at)]
        yield f"the gold patch without its hunk {hunks.index(number) + 1}", "".join(kept)


def _has_hunk(pieces: Sequence[str], index: int) -> bool:
    rest = pieces[index + 1 :]
    if pieces[index].startswith("diff --git ") and rest and rest[0].startswith("--- "):
        rest = rest[1:]
    return bool(rest) and rest[0].startswith("@@")


def trace_for(task: Task[Any, Any, Any], seat: vf.AgentConfig) -> AnyTrace:
    """A trace of the task in which no agent has done anything."""
    recorded: Any = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    info = vf.AgentInfo(config=seat, name="check", trainable=False)
    return vf.Trace(task=recorded, state=state_cls(type(task))(), agent=info)


async def apply_gold(
    gold: GoldSolution, runtime: vf.Runtime, trace: AnyTrace, workdir: str, answer_path: str | None, seconds: float
) -> None:
    """Do in the sandbox what solves the task, as the agent's user; the answer becomes the last reply, too. A
    `GoldError` where a part of it failed or ran out of time."""
    if gold.directory is not None:
        if brought := (await runtime.run(["test", "-d", SOLUTION], {})).exit_code != 0:
            await unpack_new(runtime, pack_directory(gold.directory), SOLUTION, vf.TaskError)
        await _run(runtime, _SOLVE.format(f"{SOLUTION}/{gold.script}"), workdir, seconds)
        if brought:
            await runtime.run(["rm", "-rf", SOLUTION], {})
    elif gold.script:
        await _run(runtime, gold.script, workdir, seconds)
    if gold.patch is not None:
        await upload_bundle(runtime, {"gold.patch": gold.patch}, workdir)
        argv = program_argv("apply_gold.sh", workdir, f"{workdir}/gold.patch", owner="opencode_env.taskset")
        found = await runtime.run(argv, {})
        if found.exit_code != 0:
            raise GoldError(f"the gold patch does not apply: {(found.stderr or found.stdout).strip()[-300:]}")
    if gold.files is not None:
        await _write(runtime, gold.files, workdir)
    for command in gold.commands:
        await _run(runtime, command, workdir, seconds)
    if gold.answer is not None:
        await _write(runtime, {answer_path or "answer.txt": gold.answer}, workdir)
        trace.root_reply = gold.answer if "\\boxed" in gold.answer else rf"\boxed{{{gold.answer}}}"


async def _write(runtime: vf.Runtime, files: Mapping[str, str], workdir: str) -> None:
    placed = {posixpath.join(workdir, path).lstrip("/"): text for path, text in files.items()}
    await upload_bundle(runtime, placed, "/")


async def _run(runtime: vf.Runtime, command: str, workdir: str, seconds: float) -> None:
    result = await run_command(runtime, command, workdir=workdir, timeout=seconds)
    if result.timed_out:
        raise GoldError(f"the gold solution did not end within the agent's time of {seconds:g} s")
    if result.exit_code != 0:
        raise GoldError(f"the gold solution failed ({result.ending()})")


_COMMAND = "opencode-check-tasks DATASET"
_SECONDS = 3600.0


async def gold_is_right(task: Any, runtime: vf.Runtime) -> bool | None:
    """Whether an `OpenCodeTask`'s gold solution scores 1 here, as `vf-validate` asks; None where its row has none. A
    `TaskError` where the runtime is this machine, or the column holds no solution."""
    sandbox = abilities_of(runtime)
    if sandbox.is_this_machine and not sandbox.can_end_agent:
        raise vf.TaskError(
            "vf-validate's subprocess runtime is this machine, unconfined: a solution and its tests would run on its "
            f"files, and no reward there says what a sandbox gives. Use `{_COMMAND}` (the confined local sandbox), or "
            "--runtime.type docker, podman or prime"
        )
    rubric = task.rubric_config
    path = getattr(rubric, "answer_path", None)
    config = getattr(runtime, "config", None)
    trace = trace_for(task, vf.AgentConfig() if config is None else vf.AgentConfig(runtime=config))
    try:
        gold = gold_of(task.data, rubric.type, path, None, None)
        if gold is None:
            return None
        await apply_gold(gold, runtime, trace, workdir_of(trace), path, task.data.timeout.agent or _SECONDS)
    except GoldError as error:
        raise vf.TaskError(f"{error}; `{_COMMAND}` says more") from error
    await invoke(task.finalize, {"trace": trace, "runtime": runtime, "deployment": None})
    await task.score(trace, runtime)
    return float(trace.reward) > 1 - 1e-6
