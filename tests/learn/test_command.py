"""`python -m examples.learn`: what it refuses, what its exit code says, and what an interrupt leaves."""

import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from examples.learn.__main__ import main
from examples.learn.breaking import Breaker
from tests.support.processes import alive, is_below
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("sandboxes")

SMALL = ("--steps", "1", "--groups", "4", "--size", "2")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., int]]:
    """The command in a directory of its own; returns its exit code."""
    level = logging.getLogger("verifiers").level
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["learn", *arguments])
        return main()

    yield run
    logging.getLogger("verifiers").setLevel(level)


@pytest.mark.parametrize(
    "arguments",
    [
        ("recursion", "--break", "echo"),
        ("--bare", "--break", "echo"),
        ("recursion", "--prime-rl", "somewhere"),
        ("--bare", "--prime-rl", "somewhere"),
        ("--break", "mask", "--prime-rl", "somewhere"),
        ("--prime-rl", "somewhere"),
        ("--branch",),
        ("copy", "--branch", "--break", "mask"),
        ("copy", "--branch", "--evaluate", "0", "0"),
        ("--goal", "0.9", "--evaluate", "0", "0"),
        ("--goal", "0.9", "--steps", "0"),
        ("--break", "mask", "--steps", "0"),
        ("--break", "stale", "--steps", "1"),
        ("--out", __file__),
        ("--size", "1"),
        ("--groups", "0"),
        ("--at-once", "0"),
        ("--evaluate", "-1", "4"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    arguments: tuple[str, ...], command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command(*arguments)
    said = capsys.readouterr()
    assert said.out == ""
    assert any(argument in said.err.splitlines()[-1] for argument in arguments if argument.startswith("--"))


def test_the_exit_code_is_0_for_sound_runs_that_reach_their_goal_only(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    bare = ("--bare", *SMALL, "--evaluate", "0", "4")
    assert [command(*bare), command(*bare, "--goal", "1.1")] == [0, 1]
    assert "not sound" not in capsys.readouterr().out
    assert Path("outputs/learn/seed-0/learn.png").exists()
    assert [command(*bare, "--break", "mask"), command(*bare, "--break", "rewards", "--size", "8")] == [1, 1]
    assert capsys.readouterr().out.count("not sound;") == 4  # in each run's line, and in the summary's


def test_a_mistake_that_is_not_found_is_no_success(
    command: Callable[..., int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Breaker, "__call__", lambda breaker, rollouts: rollouts)
    assert command("--bare", *SMALL, "--evaluate", "0", "0", "--break", "rewards") == 1
    assert "the mistake rewards was not found" in capsys.readouterr().out


def test_an_interrupt_leaves_the_policy_and_nothing_running(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "examples.learn", *SMALL, "--evaluate", "0", "0", "--out", str(tmp_path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("step"):
        assert line, process.communicate()
    agents: set[int] = set()

    def playing() -> bool:
        agents.update(agents_of(process))
        return bool(agents)

    wait_until(playing)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    policy = tmp_path / "seed-0" / "policy.pt"
    assert out.endswith(f"the policy is in {policy}\ninterrupted\n")
    assert policy.exists()
    assert not any(map(alive, agents))


def agents_of(process: subprocess.Popen[str]) -> set[int]:
    """Its descendants that are OpenCode."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended by now
            if b"opencode\0run" in (entry / "cmdline").read_bytes() and is_below(int(entry.name), process.pid):
                found.add(int(entry.name))
    return found
