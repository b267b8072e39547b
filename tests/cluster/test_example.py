"""`python -m examples.cluster`: a head and nodes of this machine play samples, and all of it ends. So does the
benchmark of clusters (in `make test-whole`)."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opencode_env.samples import load_samples

from examples.cluster.__main__ import told
from tests.report import made
from tests.support.sizes import size
from tests.support.user_home import UserHome
from tests.support.waiting import wait_until
from tests.test_structure import ROOT

SAMPLES = ["fix-median", "write-roman"]
ALL = [sample.id for sample in load_samples()]


def example(home: UserHome, *before: str) -> "subprocess.Popen[str]":
    """The example with two samples, each of which a worker plays; or with all ten. With `before` a shell runs it."""
    argv = [*before, sys.executable, "-m", "examples.cluster", "--output-dir", str(home.root / "runs"), "--"]
    argv += ["--select.include.ids", json.dumps(size(SAMPLES, ALL)), "--env.cluster.per-worker", "1"]
    environment = home.environment({"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"})
    shell = "/bin/sh" if before else None
    return subprocess.Popen(argv, executable=shell, cwd=home.work, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
def test_both_nodes_play_and_nothing_is_left(home: UserHome) -> None:
    """Also where `uv run` started it in a project, which Ray would install for each worker, and in whose directory Ray
    would look for modules first."""
    (home.work / "pyproject.toml").write_text('[project]\nname = "of-the-user"\nversion = "1"\n')
    (home.work / "mcp.py").write_text("raise ImportError('a program of the user')\n")
    (home.work / "run").write_text('"$@"; exit $?\n')
    started = example(home, "uv", "run")
    said, _ = started.communicate()
    assert started.returncode == 0, said
    rows = re.findall(r"^(\S+) +(127\.0\.0\.\d) +reward [\d.]+$", said, re.MULTILINE)
    assert sorted(task for task, _ in rows) == sorted(size(SAMPLES, ALL)), said
    assert {node for _, node in rows} == {"127.0.0.2", "127.0.0.3"}
    wait_until(lambda: home.leftovers() == [])


def benchmark(home: UserHome) -> "subprocess.Popen[str]":
    """The benchmark, whose first rollouts are not on nodes."""
    argv = [sys.executable, str(ROOT / "benchmarks" / "cluster.py"), "--rollouts", "1"]
    return subprocess.Popen(argv, cwd=home.work, env=home.environment(), stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.usefixtures("light_opencode")
@pytest.mark.parametrize("program", size([example], [example, benchmark]))
def test_who_is_terminated_ends_all_that_it_started(
    home: UserHome, program: Callable[[UserHome], "subprocess.Popen[str]"]
) -> None:
    started = program(home)
    playing = re.compile(r"^ray::RayWorker")
    wait_until(lambda: any(map(playing.match, home.processes().values())) or started.poll() is not None)
    started.send_signal(signal.SIGTERM)
    said, _ = started.communicate()
    assert started.returncode == 130, said
    wait_until(lambda: home.leftovers() == [])


@pytest.mark.parametrize(("changes", "code"), [({}, 0), ({"ok": False, "errors": [{"type": "E", "message": "m"}]}, 1)])
def test_the_exit_code_tells_of_a_failed_rollout(tmp_path: Path, changes: dict[str, Any], code: int) -> None:
    task = {"type": "Task", "data": {"idx": 0, "id": "task"}}
    traces = [made.trace(0, task=task), made.trace(1, None if changes else 1.0, task=task, **changes)]
    lines = [made.episode(number, "task", trace) | {"task": task} for number, trace in enumerate(traces)]
    assert told(made.write_run(tmp_path / "run", lines)) == code
