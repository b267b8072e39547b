"""Writes a software engineering task as a task directory in Harbor's layout.

Invariant: what is hidden stands below `tests/` and `solution/` alone. The directory judges in the sandbox where the
agent worked, as Harbor does: tests are put back as an untouched sandbox has them, and the log is read there with the
same parser, so that the two verdicts agree on work; the rubric's protection against cheats is not in it.
"""

import base64
import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from agent_sandbox.programs import program_text
from opencode_rubrics.swe.grading import stage_tests
from opencode_rubrics.swe.parsers import PARSERS
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.programs import text_of
from opencode_rubrics.swe.tree import File, list_tree, take_files

from opencode_env.check_tasks.box import CheckEnv
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
    if problem.parser not in PARSERS or problem.patch_file:
        raise FolderError(f"the parser {problem.parser!r}, or the change as a patch, is not to be had in a sandbox")
    workdir = task.data.workdir or "/app"
    name = str(task.data.id or task.key)
    folder = root / "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    shutil.rmtree(folder, ignore_errors=True)
    shown = task.with_data(swe=problem.model_copy(update={"hidden": []}))
    async with env.box(shown) as box:
        before = await list_tree(box.runtime, workdir)
        if not problem.command_applies_tests:
            await stage_tests(box.runtime, problem, workdir)
        tree = await list_tree(box.runtime, workdir)
        own = problem.own_test_paths
        paths = [path for path in {**before, **tree} if own & {path, *map(str, PurePosixPath(path).parents)}]
        tests = await take_files(box.runtime, workdir, tree, [path for path in paths if path in tree])
    outside = {path.lstrip("/"): text for path, text in problem.test_files.items() if path.startswith("/")}
    if outside:
        raise FolderError(f"its test {next(iter(outside))!r} stands outside of the work directory")
    _write_tests(folder / "tests", problem, workdir, sorted(own), tests)
    _write_environment(folder, task, problem, workdir)
    _write(folder, "instruction.md", task.data.prompt_text)
    if problem.gold_patch:
        _write(folder, "solution/gold.patch", problem.gold_patch)
        _write(folder, "solution/solve.sh", _for("solve.sh", workdir), executable=True)
    return folder


def _for(name: str, workdir: str) -> str:
    """The text of one of our programs, for a work directory."""
    return program_text(name, _OWNER).replace("@workdir@", workdir)


def _write(folder: Path, name: str, text: str | bytes, *, executable: bool = False) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o755 if executable else 0o644)


def _write_tests(folder: Path, problem: SweProblem, workdir: str, own: list[str], tests: Mapping[str, File]) -> None:
    fields = problem.model_dump(include={"parser", "fail_to_pass", "pass_to_pass", "exact", "skipped_is_kept"})
    _write(folder, "test.sh", _for("test.sh", workdir), executable=True)
    _write(folder, "suite.sh", problem.command)
    _write(folder, "problem.json", json.dumps(fields, indent=1))
    _write(folder, "paths.txt", "".join(f"{path}\n" for path in own))
    _write(folder, "verdict.py", program_text("verdict.py", _OWNER))
    _write(folder, "parsers.py", Path(str(PARSERS["pytest"].__code__.co_filename)).read_text(encoding="utf-8"))
    (folder / "files").mkdir()
    for path, file in tests.items():
        if file.target is None:
            _write(folder / "files", path, file.content, executable=file.executable)


def _write_environment(folder: Path, task: OpenCodeTask, problem: SweProblem, workdir: str) -> None:
    lines = [
        f"[agent]\ntimeout_sec = {task.data.timeout.agent or 5400:g}",
        f"[verifier]\ntimeout_sec = {problem.timeout:g}",
    ]
    lines.append(f"[environment]\nworkdir = {json.dumps(workdir)}")
    _write(folder, "task.toml", "\n\n".join(lines) + "\n")
    if task.data.image is not None:
        hide = text_of("hide_history.sh")
        steps = [f"cd {workdir}", *task.data.setup, *(f"rm -rf -- {path}" for path in problem.hidden)]
        _write(folder, "environment/setup.sh", "set -e\n" + "\n".join(steps) + "\n")
        _write(folder, "environment/hide_history.sh", hide)
        run = f"sh /tmp/setup/setup.sh && sh /tmp/setup/hide_history.sh {workdir} {problem.base_commit or ''}"
        recipe = f"FROM {task.data.image}\nCOPY setup.sh hide_history.sh /tmp/setup/\nRUN {run} && rm -rf /tmp/setup\n"
        _write(folder, "environment/Dockerfile", recipe)
    elif problem.archive is not None:
        _unpack(problem.archive, folder / "environment")
    else:
        raise FolderError("a bundle of git is not a directory of files")


def _unpack(archive: str, place: Path) -> None:
    """The work directory's files, without its repository, which Harbor's layout would not carry."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(base64.b64decode(archive)))) as packed:
        for member in packed:
            path = PurePosixPath(member.name)
            if not member.isreg() or ".git" in path.parts or ".." in path.parts or path.is_absolute():
                continue
            content = packed.extractfile(member)
            assert content is not None
            _write(place, str(path), content.read(), executable=bool(member.mode & 0o100))
