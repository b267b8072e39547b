"""Writes a software engineering task as a task directory in Harbor's layout.

Invariant: what is hidden stands below `tests/` and `solution/` alone. The directory judges in the sandbox where the
agent worked, as Harbor does: tests are put back as an untouched sandbox has them, and the log is read there with the
same parser, so that the two verdicts agree on work; the rubric's protection against cheats is not in it.
"""

import json
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

import verifiers.v1 as vf
from opencode_rubrics.swe.grading import gold_run, stage_tests
from opencode_rubrics.swe.parsers import PARSERS, decided
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.programs import text_of
from opencode_rubrics.swe.transfer import list_tree, take_files
from opencode_rubrics.swe.tree import MAX_CHANGE, File
from rollout_sandbox.programs import program_text
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import run_checked

from opencode_env.check_tasks.box import Box, CheckEnv
from opencode_env.taskset import OpenCodeTask

_OWNER = "opencode_env.check_tasks"


class FolderError(Exception):
    """A task cannot be told in Harbor's layout; the message says why."""


async def write_folder(env: CheckEnv, task: OpenCodeTask, root: Path) -> Path:
    """Write the task below `root`, in a directory of its id; one of that name is replaced.

    Raises:
        FolderError: the task is of another kind, or needs what Harbor's layout has no word for.
        RolloutError: the untouched sandbox, from which its tests are taken, failed.
    """
    problem = task.data.swe
    if problem is None:
        raise FolderError("only software engineering tasks can be written as folders")
    if outside := [path for path in problem.test_files if path.startswith("/")]:
        raise FolderError(f"its test {outside[0]!r} stands outside of the work directory")
    workdir = task.data.workdir or "/app"
    name = str(task.data.id or task.key)
    folder = root / "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    shutil.rmtree(folder, ignore_errors=True)
    async with env.box(task.with_data(swe=problem.model_copy(update={"hidden": []}))) as box:
        parser = await _own_parser(box, problem, workdir)
        before = await list_tree(box.runtime, workdir)
        if task.data.image is None:
            seen = [path for path in before if not _below(f"{workdir}/{path}", problem.hidden)]
            _write_files(folder / "environment", await take_files(box.runtime, workdir, before, seen))
        if problem.patch_file:
            await _write_repository(box.runtime, folder / "tests", problem.patch_file, workdir)
        elif hidden := [path for path in problem.hidden if path not in problem.test_copies.values()]:
            await _pack(box.runtime, folder / "tests" / "hidden.tgz", "/", [path.lstrip("/") for path in hidden])
        if not problem.command_applies_tests:
            await stage_tests(box.runtime, problem, workdir)
        tree = await list_tree(box.runtime, workdir)
        paths = [path for path in {**before, **tree} if _below(path, problem.own_test_paths)]
        tests = await take_files(box.runtime, workdir, tree, [path for path in paths if path in tree])
    _write_tests(folder / "tests", problem.model_copy(update={"parser": parser}), workdir, tests)
    _write_environment(folder, task, problem, workdir)
    _write(folder, "instruction.md", task.data.prompt_text)
    if problem.gold_patch:
        _write(folder, "solution/gold.patch", problem.gold_patch)
        _write(folder, "solution/solve.sh", _for("solve.sh", workdir), executable=True)
    return folder


def _below(path: str, places: Collection[str]) -> bool:
    return bool({path, *map(str, PurePosixPath(path).parents)} & {*places})


async def _own_parser(box: Box, problem: SweProblem, workdir: str) -> str:
    """The parser of ours that reads the suite's logs as the row's own does; the sandbox has no other."""
    if problem.parser in PARSERS:
        return problem.parser
    wanted, runs = (problem.fail_to_pass, problem.pass_to_pass, problem.exact, problem.skipped_is_kept), []
    for patch in dict.fromkeys((problem.gold_patch, "")):
        asked = problem.model_copy(update={"gold_patch": patch})
        runs.append(await gold_run(box.rollout, asked, workdir, record=False, whole=True))
    if not decided(*wanted, runs[0].states)[2]:
        raise FolderError(f"its gold patch does not solve it, so no parser can take the place of {problem.parser!r}")
    for name, read in PARSERS.items():
        if all(decided(*wanted, read(run.log)) == decided(*wanted, run.states) for run in runs):
            return name
    raise FolderError(f"no parser of ours, which a sandbox could run, reads its logs as {problem.parser!r} does")


async def _write_repository(runtime: vf.Runtime, tests: Path, patch_file: str, workdir: str) -> None:
    """What makes the agent's change a patch, as the suite's command expects it."""
    head = await run_checked(runtime, ["git", "-C", workdir, "rev-parse", "HEAD"], "the base commit cannot be told")
    text = program_text("make_change.sh", _OWNER).replace("@patch@", patch_file)
    _write(tests, "make_change.sh", text.replace("@base@", head.stdout.strip()))
    await _pack(runtime, tests / "repository.tgz", workdir, [".git"])


async def _pack(runtime: vf.Runtime, place: Path, directory: str, paths: Sequence[str]) -> None:
    """Those of these paths of a sandbox that are there, as an archive."""
    name = f"/tmp/.{uuid.uuid4().hex}"
    script = 'cd -- "$1" && name=$2 && shift 2 && for path; do [ ! -e "$path" ] || echo "$path"; done >"$name.list" && '
    script += '[ ! -s "$name.list" ] || tar -czf "$name" -T "$name.list"'
    await run_checked(runtime, ["sh", "-c", script, "pack", directory, name, *paths], "files cannot be packed")
    found = await read_bounded(runtime, name, MAX_CHANGE)
    if found is FileState.OVERSIZED:
        raise FolderError(f"{paths[0]} is larger than {MAX_CHANGE >> 20} MiB")
    if isinstance(found, bytes):
        _write(place.parent, place.name, found)


def _for(name: str, workdir: str) -> str:
    """The text of one of our programs, for a work directory."""
    return program_text(name, _OWNER).replace("@workdir@", workdir)


def _write(folder: Path, name: str, text: str | bytes, *, executable: bool = False) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o755 if executable else 0o644)


def _write_files(folder: Path, files: Mapping[str, File]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, file in files.items():
        if file.target is None:
            _write(folder, path, file.content, executable=file.executable)


def _write_tests(folder: Path, problem: SweProblem, workdir: str, tests: Mapping[str, File]) -> None:
    fields = problem.model_dump(
        include={"parser", "fail_to_pass", "pass_to_pass", "exact", "skipped_is_kept", "fail_only"}
    )
    _write(folder, "test.sh", _for("test.sh", workdir), executable=True)
    _write(folder, "suite.sh", problem.command)
    _write(folder, "problem.json", json.dumps(fields, indent=1))
    _write(folder, "paths.txt", "".join(f"{path}\n" for path in sorted(problem.own_test_paths)))
    _write(folder, "verdict.py", program_text("verdict.py", _OWNER))
    _write(folder, "parsers.py", Path(str(PARSERS["pytest"].__code__.co_filename)).read_text(encoding="utf-8"))
    _write_files(folder / "files", tests)


def _write_environment(folder: Path, task: OpenCodeTask, problem: SweProblem, workdir: str) -> None:
    lines = [
        f"[agent]\ntimeout_sec = {task.data.timeout.agent or 5400:g}",
        f"[verifier]\ntimeout_sec = {problem.timeout:g}",
        f"[environment]\nworkdir = {json.dumps(workdir)}",
    ]
    _write(folder, "task.toml", "\n\n".join(lines) + "\n")
    if task.data.image is not None:
        steps = [f"cd {workdir}", *task.data.setup, *(f"rm -rf -- {path}" for path in problem.hidden)]
        _write(folder, "environment/setup.sh", "set -e\n" + "\n".join(steps) + "\n")
        _write(folder, "environment/hide_history.sh", text_of("hide_history.sh"))
        run = f"sh /tmp/setup/setup.sh && sh /tmp/setup/hide_history.sh {workdir} {problem.base_commit or ''}"
        recipe = f"FROM {task.data.image}\nCOPY setup.sh hide_history.sh /tmp/setup/\nRUN {run} && rm -rf /tmp/setup\n"
        _write(folder, "environment/Dockerfile", recipe)
