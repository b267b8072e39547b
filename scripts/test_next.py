"""`make test-next`: the type checker and chosen tests against the newest verifiers that the package index has.

They run in an environment of their own: the locked tools and our packages from this checkout, with the newest
verifiers, pre-releases included, and what that needs. `[tool.opencode-envs.test-next]` in pyproject.toml names the last
version known to work and the tests. Invariant: a failure under a version newer than that is reported but is not a
failure of this checkout; under any other it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parent.parent
ENVIRONMENT = Path(".cache/next-venv")
_VERSION = "from importlib.metadata import version; print(version('verifiers'))"


@dataclass(frozen=True)
class Settings:
    """The table `tool.opencode-envs.test-next` of a project."""

    known: Version
    """The last version of verifiers whose failures are ours."""
    tests: tuple[str, ...]
    """What pytest is given."""

    @classmethod
    def of(cls, project: Path) -> "Settings":
        """The settings in a project's pyproject.toml."""
        table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["opencode-envs"]["test-next"]
        return cls(Version(table["known"]), tuple(table["tests"]))


@dataclass
class Outcome:
    """What was run, and what failed."""

    ran: list[str] = field(default_factory=list)
    """A sentence per program."""
    failures: list[str] = field(default_factory=list)


def uv(*arguments: str, project: Path, env: Mapping[str, str] | None = None) -> None:
    """Run uv in the project.

    Raises:
        SystemExit: it failed; its message is on standard error.
    """
    done = subprocess.run(["uv", *arguments], cwd=project, env={**os.environ, **(env or {})}, check=False)
    if done.returncode != 0:
        raise SystemExit(f"test-next: uv {arguments[0]} failed with exit code {done.returncode}: see above")


def make_environment(project: Path, known: Version) -> Path:
    """The environment with the newest verifiers, at least the known one; returns its directory."""
    environment = project / ENVIRONMENT
    groups = ["--group", "openenv", *([] if shutil.which("npm") else ["--group", "npm"])]
    uv("sync", "--quiet", "--locked", *groups, project=project, env={"UV_PROJECT_ENVIRONMENT": str(environment)})
    # As an override it also lifts the upper bound that our packages put on verifiers.
    wanted = environment / "verifiers.txt"
    wanted.write_text(f"verifiers>={known}\n")
    override = ["--prerelease-package", "verifiers=allow", "--overrides", str(wanted), "--requirements", str(wanted)]
    uv("pip", "install", "--python", str(environment), *override, project=project)
    return environment


def version_in(environment: Path) -> Version:
    """The version of verifiers in an environment."""
    argv = [str(environment / "bin" / "python"), "-c", _VERSION]
    return Version(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def check_types(project: Path, environment: Path, outcome: Outcome) -> None:
    """Run mypy as the project configures it, with the names that are false for the locked verifiers true.

    An ignored error that the other version does not show is not reported.
    """
    (project / ".cache").mkdir(exist_ok=True)
    config = project / ".cache" / "next-mypy.toml"
    lines = (project / "pyproject.toml").read_text().replace("\nalways_false = ", "\nalways_true = ")
    config.write_text(lines.replace("\nstrict = true\n", "\nstrict = true\nwarn_unused_ignores = false\n"))
    argv = [str(environment / "bin" / "python"), "-m", "mypy", "--config-file", str(config)]
    argv += ["--cache-dir", str(project / ".cache" / "next-mypy")]
    done = subprocess.run(argv, cwd=project, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    if done.returncode != 0 and not errors:
        errors = [f"mypy ended with exit code {done.returncode}"]
    outcome.ran.append(f"mypy: {len(errors)} errors")
    outcome.failures += errors


def run_tests(project: Path, environment: Path, tests: Sequence[str], outcome: Outcome) -> None:
    """Run the tests; one that cannot be collected is a failure, and the others run.

    What fails is run once more, one by one: a busy machine is not a failure, and is told.
    """
    cases, names = pytest(project, environment, tests)
    failed = len(names)
    if failed:
        _, names = pytest(project, environment, [*tests, "-n", "0", "--last-failed"])
    passed = f" ({failed - len(names)} of them passed alone)" if len(names) < failed else ""
    skipped = sum(case.find("skipped") is not None for case in cases)
    outcome.ran.append(f"tests: {len(cases)}, of them {failed} failed{passed} and {skipped} skipped")
    outcome.failures += names


def pytest(project: Path, environment: Path, arguments: Sequence[str]) -> tuple[list[ElementTree.Element], list[str]]:
    """The cases of a run of pytest, and the names of those that failed."""
    report = project / ".cache" / "next-tests.xml"
    report.unlink(missing_ok=True)
    argv = [str(environment / "bin" / "python"), "-m", "pytest", "--continue-on-collection-errors"]
    env = {**os.environ, "VIRTUAL_ENV": str(environment)}
    code = subprocess.run([*argv, "--junit-xml", str(report), *arguments], cwd=project, env=env, check=False).returncode
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    names = [f"{case.get('classname')}::{case.get('name')}" for case in failed]
    if code != 0 and not names:
        names = [f"pytest ended with exit code {code}"]
    return cases, names


def verdict(installed: Version, known: Version, failures: Sequence[str]) -> tuple[str, int]:
    """The last line and the exit code."""
    if installed <= known:
        return (f"{len(failures)} failures" if failures else "no failure"), int(bool(failures))
    if failures:
        return f"newer than known: {len(failures)} failures", 0
    return f"newer than known: no failure; known = {str(installed)!r} in pyproject.toml would be true", 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--project", type=Path, default=ROOT, help="folder with pyproject.toml (default: this checkout)"
    )
    parser.add_argument("--environment", type=Path, help="take this environment as it is instead of making one")
    parser.add_argument(
        "--run", nargs=argparse.REMAINDER, help="run this program there, with its arguments, and no test"
    )
    options = parser.parse_args()
    project = options.project.resolve()
    settings = Settings.of(project)
    environment = options.environment or make_environment(project, settings.known)
    if options.run:
        argv = [str(environment / "bin" / "python"), *options.run]
        return subprocess.run(argv, cwd=project, check=False).returncode
    installed = version_in(environment)
    print(f"test-next: verifiers {installed} (known: {settings.known})", flush=True)
    outcome = Outcome()
    check_types(project, environment, outcome)
    run_tests(project, environment, settings.tests, outcome)
    for line in outcome.failures:
        print(f"test-next: failed: {line}")
    last_line, code = verdict(installed, settings.known, outcome.failures)
    print(f"test-next: verifiers {installed}: {'; '.join(outcome.ran)}; {last_line}")
    return code


if __name__ == "__main__":
    sys.exit(main())
