"""`make test-next`: failures under a verifiers newer than the last known one are told and are not failures."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from scripts.test_next import Outcome, Settings, run_tests, verdict
from tests.test_structure import ROOT

PROJECT = """
[tool.opencode-envs.test-next]
known = "{known}"
tests = ["test_things.py", "test_unreadable.py"]

[tool.mypy]
strict = true
files = ["typed.py"]
always_false = ["NEXT"]
"""
FILES = {
    "typed.py": "NEXT = True\nif NEXT:\n    number: int = 'text'\nelse:\n    text: str = 1\n",
    "test_things.py": "def test_holds(): pass\ndef test_fails(): assert 1 == 2\n",
    "test_unreadable.py": "import no_such_module\n",
}
SOUND = {"typed.py": "number: int = 1\n", "test_unreadable.py": "import sys\n"}
LOCKED = Version(version("verifiers"))
OLDER = Version("0.3.0")


def play(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command for a small project in this environment, which stands for the one with the newest verifiers."""
    (folder / "pyproject.toml").write_text(PROJECT.format(known=LOCKED))
    for name, content in files.items():
        (folder / name).write_text(content)
    program = [sys.executable, str(ROOT / "scripts" / "test_next.py")]
    argv = [*program, "--project", str(folder), "--environment", sys.prefix]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("programs")
def test_failures_are_told_and_fail_the_command(tmp_path: Path) -> None:
    done = play(tmp_path, FILES)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"test-next: verifiers {LOCKED} (known: {LOCKED})" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.endswith("mypy: 1 errors; tests: 3, of them 2 failed and 0 skipped; 3 failures")
    for failure in ("typed.py:3: error: ", "test_things::test_fails", "::test_unreadable"):
        assert f"test-next: failed: {failure}" in done.stdout


@pytest.mark.parametrize(
    ("known", "failures", "told", "code"),
    [
        (OLDER, 3, "newer than known: 3 failures", 0),
        (OLDER, 0, f"newer than known: no failure; known = '{LOCKED}' in pyproject.toml would be true", 0),
        (LOCKED, 3, "3 failures", 1),
        (LOCKED, 0, "no failure", 0),
    ],
)
def test_failures_fail_the_command_only_under_a_version_that_is_known(
    known: Version, failures: int, told: str, code: int
) -> None:
    assert verdict(LOCKED, known, ["x"] * failures) == (told, code)


@pytest.mark.usefixtures("programs")
def test_tests_that_do_not_run_are_failures(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    (tmp_path / "test_things.py").touch()
    run_tests(tmp_path, Path(sys.prefix), ["test_things.py"], outcome := Outcome())
    assert outcome.failures == ["pytest ended with exit code 5"]


def test_the_repository_knows_a_version_that_is_not_older_than_the_locked_one_and_its_tests_exist() -> None:
    settings = Settings.of(ROOT)
    assert settings.known >= Version("0.4.0")
    assert settings.tests
    assert all((ROOT / name).exists() for name in settings.tests)


@pytest.mark.usefixtures("programs")
def test_what_passes_when_it_is_run_alone_is_told_and_is_no_failure(tmp_path: Path) -> None:
    once = "from pathlib import Path\ndef test_once():\n    seen = Path('seen').exists()\n    Path('seen').touch()\n"
    files = {**SOUND, "test_things.py": f"{once}    assert seen\n"}
    done = play(tmp_path, files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests: 1, of them 1 failed (1 of them passed alone) and 0 skipped; no failure" in done.stdout
