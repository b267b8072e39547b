"""What says that a command lacked a program, as shells say it, and what only looks like it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from opencode_rubrics.task_tests import lacked_program
from rollout_sandbox.toolbox.command import CommandResult

SHELLS = [found for name in ("sh", "bash", "dash", "busybox") if (found := shutil.which(name))]


def result(exit_code: int = 0, stdout: str = "", stderr: str = "", *, timed_out: bool = False) -> CommandResult:
    """What a command did."""
    return CommandResult("./test.sh", exit_code, 0.1, stdout, stderr, timed_out)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("line", ["no-such-runner /tests", "./plain", "./interpreted", "env no-such-runner", "true"])
def test_every_shell_s_own_words_are_known(shell: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("true\n")
    (tmp_path / "interpreted").write_text("#!/no/such/interpreter\n")
    (tmp_path / "interpreted").chmod(0o755)
    (tmp_path / "script").write_text(f"{line}\necho went on\n")
    argv = [shell, "sh", "script"] if shell.endswith("busybox") else [shell, "script"]
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, env=env)
    told = lacked_program(result(done.returncode, done.stdout, done.stderr))
    assert bool(told) == (line != "true"), done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "/bin/sh: uv: not found",  # busybox, given a line
        "bash: ./run: Permission denied",
        "make: *** [Makefile:3: check] Error 127",
        "make[1]: *** [check] Error 126",
    ],
)
def test_what_is_said_without_a_line_number_is_known_too(line: str) -> None:
    assert lacked_program(result(1, stderr=f"before\n{line}\n")) == line


def test_the_exit_code_says_it_without_words() -> None:
    assert lacked_program(result(127)) == "exit code 127, of a program which was not found"
    assert lacked_program(result(126)) == "exit code 126, of a program which cannot be run"
    both = lacked_program(result(127, "uvx: command not found\n"))
    assert both == "exit code 127, of a program which was not found: uvx: command not found"


@pytest.mark.parametrize(
    "said",
    [
        result(0, "all passed"),
        result(1, "E   FileNotFoundError: [Errno 2] No such file or directory: 'out.txt'"),
        result(1, "E   AssertionError: key not found", "cat: out.txt: Permission denied"),
        result(1, "HTTP 404: page not found"),
        result(2, "make: *** [Makefile:3: check] Error 1", "bash: warning: setlocale: LC_ALL: cannot change locale"),
        result(127, timed_out=True),
    ],
)
def test_other_failures_are_none(said: CommandResult) -> None:
    assert lacked_program(said) == ""
