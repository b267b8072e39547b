"""The command `opencode-check-tasks`: are these tasks fit to be trained on?"""

import argparse
import asyncio
import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_rubrics.swe.tree import TreeError
from opencode_runs.command import say
from pydantic_config import cli
from verifiers.v1.cli.resolve import narrow_config, plugin_errors
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.task import Task

from opencode_env.check_tasks.box import CheckEnv
from opencode_env.check_tasks.check import TaskCheck
from opencode_env.check_tasks.report import Check, Report, Results, table
from opencode_env.check_tasks.write_folder import FolderError, write_folder
from opencode_env.taskset import DatasetError, OpenCodeTask

PROG = "opencode-check-tasks"
_EPILOG = (
    "Every other option is one of vf-eval's (--env.taskset.answer-key, --env.agent.runtime.type podman, @ file.toml). "
    "Exit code 0: nothing was found; 1: there are findings; 2: the check could not be done, or not of all tasks."
)


def build_parser() -> argparse.ArgumentParser:
    """The command's own options."""
    usage = f"{PROG} [DATASET] [options] [options of vf-eval]"
    parser = argparse.ArgumentParser(PROG, usage=usage, description=__doc__, epilog=_EPILOG, allow_abbrev=False)
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
    """Run the command line `arguments` (None: those of the process) and return the exit code."""
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
        say(f"{PROG}: {error}", sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; --results goes on from here", file=sys.stderr)  # noqa: T201
        return 130
    document = {"tasks": len(reports), "reports": [report.model_dump(mode="json") for report in reports]}
    say(json.dumps(document, indent=2) if options.json else table(reports))
    if not reports or any(report.error for report in reports):
        return 2
    return int(any(report.findings for report in reports))


async def _checked(options: argparse.Namespace, config: Any) -> list[Report]:
    env = CheckEnv(config)
    digest = _digest(options, config)
    results = Results(options.results) if options.results else None
    reports: dict[int, Report] = {}
    progress = _Progress()
    places = asyncio.Semaphore(options.jobs)
    running: set[asyncio.Task[None]] = set()

    async def one(number: int, task: Task[Any, Any, Any]) -> None:
        try:
            reports[number] = report = await _report(env, task, options, digest)
            if results is not None:
                results.add(report)
            progress.add()
        finally:
            places.release()

    try:
        await env.start()
        for number, task in enumerate(islice(env.taskset, options.limit)):
            if results is not None and (report := results.done(task.key, task.hash, digest)) is not None:
                reports[number] = report
                progress.add()
                continue
            await places.acquire()
            running.add(checking := asyncio.create_task(one(number, task)))
            checking.add_done_callback(running.discard)
        await asyncio.gather(*running)
    finally:
        await env.stop()
    return [reports[number] for number in sorted(reports)]


class _Progress:
    """A line on stderr every ten seconds."""

    def __init__(self) -> None:
        self._started = self._told = time.monotonic()
        self._done = 0

    def add(self) -> None:
        self._done, now = self._done + 1, time.monotonic()
        if now - self._told >= 10:
            self._told = now
            rate = self._done / (now - self._started)
            print(f"{PROG}: {self._done} tasks, {rate:.2f} a second", file=sys.stderr, flush=True)  # noqa: T201


def _digest(options: argparse.Namespace, config: Any) -> str:
    """Equal for checks that would find the same."""
    parts = [options.repeats, options.gold, config.agent.model_dump_json(), config.taskset.task.model_dump_json()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


async def _report(env: CheckEnv, task: Task[Any, Any, Any], options: argparse.Namespace, digest: str) -> Report:
    started = time.monotonic()
    report = Report(key=task.key, hash=task.hash, options=digest)
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
    """The directory of a task of a folder of them."""
    if dataset is None or task.data.tests is None or task.data.id is None:
        return None
    root = Path(dataset).expanduser()
    return root if (root / "task.toml").is_file() else root / task.data.id


if __name__ == "__main__":
    sys.exit(main())
