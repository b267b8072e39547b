"""The command `opencode-check-tasks`: are these tasks fit to be trained on?

It also writes a software engineering task as a directory in Harbor's layout. What is hidden stands below `tests/` and
`solution/` alone. The directory judges in the sandbox where the agent worked, as Harbor does, so that the two verdicts
agree on work; the rubric's protection against cheats is not in it.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import os
import shutil
import sys
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics.swe.file_tree import MAX_CHANGE, FileContent, TreeError
from opencode_rubrics.swe.grading import gold_run, stage_tests
from opencode_rubrics.swe.parsers import PARSERS, decided
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.swe.programs import text_of
from opencode_rubrics.swe.transfer import list_tree, take_files
from opencode_runs.console_command import say
from pydantic_config import cli
from rollout_sandbox.programs import program_text
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded
from rollout_sandbox.toolbox.checked_run import run_checked
from verifiers.v1.cli.resolve import narrow_config, plugin_errors
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.task import Task

from opencode_env.check_tasks.check import Check, CheckEnv, SavedReports, TaskCheck, TaskReport, TaskSandbox, table
from opencode_env.errors import FolderError
from opencode_env.taskset import DatasetError, OpenCodeTask

_OWNER = "opencode_env.check_tasks"


async def write_folder(env: CheckEnv, task: OpenCodeTask, root: Path) -> Path:
    """Write the task below `root`, in a directory of its id; one of that name is replaced. A `FolderError` where it is
    of another kind, or needs what Harbor's layout has no word for."""
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


async def _own_parser(box: TaskSandbox, problem: SweProblem, workdir: str) -> str:
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
    """Return what makes the agent's change a patch, as the suite's command expects it."""
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
    return program_text(name, _OWNER).replace("@workdir@", workdir)


def _write(folder: Path, name: str, text: str | bytes, *, executable: bool = False) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o755 if executable else 0o644)


def _write_files(folder: Path, files: Mapping[str, FileContent]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path, file in files.items():
        if file.target is None:
            _write(folder, path, file.content, executable=file.executable)


def _write_tests(folder: Path, problem: SweProblem, workdir: str, tests: Mapping[str, FileContent]) -> None:
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


_PROG = "opencode-check-tasks"
_EPILOG = (
    "Every other option is one of vf-eval's (--env.taskset.answer-key, --env.agent.runtime.type podman, @ file.toml). "
    "Exit code 0: nothing was found; 1: there are findings; 2: the check could not be done, or not of all tasks."
)


def build_parser() -> argparse.ArgumentParser:
    usage = f"{_PROG} [DATASET] [options] [options of vf-eval]"
    parser = argparse.ArgumentParser(_PROG, usage=usage, description=__doc__, epilog=_EPILOG, allow_abbrev=False)
    parser.add_argument("--taskset", default="opencode-env", metavar="ID", help="the taskset (default %(default)s)")
    parser.add_argument(
        "--gold", metavar="COLUMN", help="column of the right solution (default: gold, solution, patch)"
    )
    parser.add_argument("--repeats", type=_positive, default=3, metavar="K", help="sandboxes of each kind (default 3)")
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="tasks at once (default: cores)")
    parser.add_argument("--limit", type=_positive, metavar="N", help="look at the first N tasks only")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="JSONL of the reports; what it holds is not redone"
    )
    parser.add_argument(
        "--write-folders",
        type=Path,
        metavar="DIR",
        help="also write software engineering tasks there, in Harbor's layout",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    named = given.pop(0) if given and not given[0].startswith(("-", "@")) else None
    options, rest = build_parser().parse_known_args(given)
    options.dataset = named
    dataset = ["--env.taskset.dataset", named] if named else []
    argv = ["--env.taskset.id", options.taskset, *dataset, *rest]
    with plugin_errors():
        config: Any = cli(narrow_config(EvalConfig, argv), args=argv)
    logging.getLogger("verifiers").setLevel(logging.ERROR)
    try:
        reports = asyncio.run(_checked(options, config.env))
    except DatasetError as error:
        say(f"{_PROG}: {error}", sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{_PROG}: interrupted; --results goes on from here", file=sys.stderr)  # noqa: T201
        return 130
    document = {"tasks": len(reports), "reports": [report.model_dump(mode="json") for report in reports]}
    say(json.dumps(document, indent=2) if options.json else table(reports))
    if not reports or any(report.error for report in reports):
        return 2
    return int(any(report.findings for report in reports))


async def _checked(options: argparse.Namespace, config: Any) -> list[TaskReport]:
    from opencode_runs.progress import Progress  # which reads all variables as it is imported

    env = CheckEnv(config)
    parts = [options.repeats, options.gold, config.agent.model_dump_json(), config.taskset.task.model_dump_json()]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    results = SavedReports(options.results) if options.results else None
    reports: dict[int, TaskReport] = {}
    progress = Progress("checking", 0, "tasks")
    places = asyncio.Semaphore(options.jobs)
    running: set[asyncio.Task[None]] = set()

    async def one(number: int, task: Task[Any, Any, Any]) -> None:
        try:
            reports[number] = report = await _report(env, task, options, digest)
            if results is not None:
                results.add(report)
            progress.update(1)
        finally:
            places.release()

    try:
        await env.start()
        for number, task in enumerate(islice(env.taskset, options.limit)):
            if results is not None and (report := results.done(task.key, task.hash, digest)) is not None:
                reports[number] = report
                progress.update(1)
                continue
            await places.acquire()
            running.add(checking := asyncio.create_task(one(number, task)))
            checking.add_done_callback(running.discard)
        await asyncio.gather(*running)
    finally:
        progress.close()
        await env.stop()
    return [reports[number] for number in sorted(reports)]


async def _report(env: CheckEnv, task: Task[Any, Any, Any], options: argparse.Namespace, digest: str) -> TaskReport:
    started = time.monotonic()
    report = TaskReport(key=task.key, hash=task.hash, options=digest)
    check: Check
    if hasattr(task, "own_check"):  # a world is not checked in a sandbox
        check = task.own_check(options.repeats, options.gold)
    elif isinstance(task, OpenCodeTask):
        check = TaskCheck(env, task, options.repeats, options.gold, _directory(options.dataset, task))
    else:
        return report.model_copy(update={"error": f"{type(task).__name__} is not a task of ours"})
    error = None
    try:
        await check.run()
    except Exception as problem:  # noqa: BLE001 - one task must not end the check of thirty thousand
        error = f"{type(problem).__name__}: {str(problem)[-600:]}"
    if options.write_folders is not None and error is None and isinstance(task, OpenCodeTask):
        try:
            await write_folder(env, task, options.write_folders)
        except (FolderError, vf.RolloutError, TreeError) as problem:
            error = f"it is not written as a folder: {problem}"
    found = {"findings": check.findings, "untouched": check.untouched, "gold": check.gold, "error": error}
    return report.model_copy(update={**found, "seconds": round(time.monotonic() - started, 3)})


def _directory(dataset: str | None, task: OpenCodeTask) -> Path | None:
    if dataset is None or task.data.tests is None or task.data.id is None:
        return None
    root = Path(dataset).expanduser()
    return root if (root / "task.toml").is_file() else root / task.data.id


if __name__ == "__main__":
    sys.exit(main())
