"""Installed elsewhere: the wheels in an empty environment, with nothing of this checkout in sight."""

import asyncio
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from opencode_env.scripted_model import SamplesPolicy, ScriptedModel

from tests.support.user_home import Finished, UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
PACKAGES = {
    "opencode_env": ROOT / "environments" / "opencode_env" / "opencode_env",
    "opencode_rlm": ROOT / "environments" / "opencode_rlm" / "opencode_rlm",
    "opencode_rubrics": ROOT / "rubrics" / "opencode_rubrics",
}


@dataclass(frozen=True)
class Installed:
    """The wheels by package, and the environment they are installed in."""

    wheels: dict[str, Path]
    environment: Path

    def program(self, name: str) -> Path:
        """A program of the environment."""
        return self.environment / "bin" / name


def uv(*arguments: str, cwd: Path) -> None:
    """Run uv, which reaches the package registry as this machine is set up."""
    program = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
    done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"uv {' '.join(arguments)}: {done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Wheels of all members, built and installed."""
    place = tmp_path_factory.mktemp("elsewhere")
    uv("build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(place / "dist"), cwd=ROOT)
    wheels = sorted((place / "dist").glob("*.whl"))
    uv("venv", "--quiet", "--python", sys.executable, str(place / "venv"), cwd=place)
    python = str(place / "venv" / "bin" / "python")
    extras = {"opencode_env": "[conformance]"}
    named = [f"{wheel}{extras.get(wheel.name.partition('-')[0], '')}" for wheel in wheels]
    uv("pip", "install", "--quiet", "--python", python, *named, cwd=place)
    return Installed({wheel.name.partition("-")[0]: wheel for wheel in wheels}, place / "venv")


def names_in(wheel: Path) -> Sequence[str]:
    """The files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_there_is_a_wheel_for_each_member(installed: Installed) -> None:
    assert set(installed.wheels) == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_holds_every_file_of_its_package_and_nothing_else(installed: Installed, package: str) -> None:
    source = PACKAGES[package]
    wanted = {
        f"{package}/{path.relative_to(source)}"
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in names_in(installed.wheels[package]) if ".dist-info/" not in name}
    assert packed == wanted
    assert f"{package}/py.typed" in packed


def test_programs_and_data_that_are_read_at_run_time_are_in_the_wheels(installed: Installed) -> None:
    env = set(names_in(installed.wheels["opencode_env"]))
    for name in (
        "opencode/programs/launch.sh",
        "opencode/programs/plugin.js",
        "opencode/programs/download.sh",
        "samples/tasks.jsonl",
        "cli_agent/programs/end.sh",
        "cli_agent/sandbox/etc/passwd",
        "cli_agent/sandbox/supervisor/main.py",
    ):
        assert f"opencode_env/{name}" in env
    assert "opencode_rubrics/sandbox/programs/run_command.sh" in names_in(installed.wheels["opencode_rubrics"])


@pytest.fixture(scope="module")
def finished(installed: Installed, shared_home: UserHome) -> Finished:
    """One sample, evaluated by the installed command."""

    async def run() -> Finished:
        async with ScriptedModel(SamplesPolicy(1.0)) as model:
            arguments = ["opencode-env", "--select.limit", "1"]
            program = installed.program("vf-eval")
            return await shared_home.run("elsewhere", model.base_url, *arguments, program=program)

    return asyncio.run(run())


def test_vf_eval_runs_from_another_directory(finished: Finished, installed: Installed, shared_home: UserHome) -> None:
    assert finished.exit_code == 0, finished.log
    (episode,) = finished.episodes
    assert episode.traces[0].reward == 1.0
    assert shared_home.leftovers() == []


def test_what_ran_was_the_installed_package(installed: Installed, shared_home: UserHome) -> None:
    code = "import opencode_env, opencode_rubrics, opencode_rlm as m; print(opencode_env.__file__, m.__file__)"
    argv = [str(installed.program("python")), "-c", code]
    done = subprocess.run(argv, cwd=shared_home.work, env=shared_home.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(Path(path).is_relative_to(installed.environment) for path in done.stdout.split())


def test_the_scripted_model_is_a_program_of_the_installed_package(installed: Installed, shared_home: UserHome) -> None:
    argv = [str(installed.program("python")), "-m", "opencode_env.scripted_model", "--help"]
    done = subprocess.run(argv, cwd=shared_home.work, env=shared_home.environment(), capture_output=True, text=True)
    assert done.returncode == 0
    assert "not a language model" in done.stdout


@pytest.mark.parametrize(
    "form",
    [
        ["-m", "opencode_env.conformance"],
        ["-m", "pytest", "-p", "opencode_env.conformance.plugin", "--pyargs", "opencode_env.conformance"],
    ],
    ids=["program", "pytest plugin"],
)
def test_the_conformance_suite_can_be_run_from_the_installed_package(
    installed: Installed, shared_home: UserHome, form: list[str]
) -> None:
    argv = [str(installed.program("python")), *form, "--harness", "bash", "--collect-only", "-q"]
    done = subprocess.run(argv, cwd=shared_home.work, env=shared_home.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_a_sound_answer_is_a_finished_rollout_with_its_reward" in done.stdout
