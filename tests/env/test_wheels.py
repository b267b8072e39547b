"""Installed elsewhere: the wheels in an empty environment, with nothing of this checkout in sight."""

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, SamplesPolicy, ScriptedModel, WorldsPolicy
from opencode_env.scripted_model.policy import ChatRequest
from packaging.version import Version
from rollout_sandbox.compat import AFTER_0_4_0

from tests.support.light_opencode import REAL, light_opencode_in_place
from tests.support.programs import finished
from tests.support.replies import call
from tests.support.rows import probe, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

ROOT = Path(__file__).parent.parent.parent
CONFIGS = ROOT / "configs" / "eval"
PACKAGES = {
    "opencode_env": [ROOT / "environments" / "opencode_env" / "opencode_env"],
    "opencode_openenv": [ROOT / "environments" / "opencode_openenv" / "opencode_openenv"],
    "opencode_rlm": [ROOT / "environments" / "opencode_rlm" / "opencode_rlm"],
    "opencode_simulation": [ROOT / "environments" / "opencode_simulation" / "opencode_simulation"],
    "opencode_tasks": [path.parent for path in (ROOT / "environments" / "opencode_tasks").glob("*/__init__.py")],
    "opencode_rubrics": [ROOT / "rubrics" / "opencode_rubrics"],
    "rollout_sandbox": [ROOT / "packages" / "rollout_sandbox" / "rollout_sandbox"],
    "mathverdict": [ROOT / "packages" / "mathverdict" / "mathverdict"],
    "opencode_runs": [ROOT / "packages" / "opencode_runs" / "opencode_runs"],
}
"""The packages in each wheel."""
PROGRAMS = {f"agents/opencode/programs/{name}" for name in ("launch.sh", "plugin.js", "download.sh")}
READ_AT_RUN_TIME = {
    "opencode_env": {*PROGRAMS, "samples/tasks.jsonl", "samples/solutions.toml", "agents/named/programs/npm.sh"},
    "rollout_sandbox": {"programs/run_command.sh", "confined/etc/passwd", "confined/supervisor/main.py"},
    "opencode_simulation": {"samples/issue-tracker.jsonl", "samples/order-desk.jsonl"},
}
VERIFIERS = Version(version("verifiers"))
DOCUMENTS = "\n".join(path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))))
_ENDPOINT = "-m MODEL -c 8 --client.base-url URL"
DOCUMENTED_COMMANDS = {
    "opencode-env": f"opencode-env {_ENDPOINT} --client.api-key-var NAME_OF_KEY_VARIABLE --no-push",
    "configuration": "@ configs/eval/local.toml --no-push",
    "opencode-rlm": f"opencode-rlm {_ENDPOINT} --env.sub-model SMALL --no-push",
    "foreign": f"TASKSET --env.id opencode-env {_ENDPOINT} --no-push",
    "world": f"opencode-simulation --env.taskset.task.world my_worlds:Shop {_ENDPOINT} --no-push",
    "simulation": "@ configs/eval/simulation.toml --no-push",
    "user": f"opencode-env --env.taskset.dataset rows.jsonl {_ENDPOINT} --no-push",
}
"""What the documents tell users to type behind `vf-eval`, by what it shows; `tests/docs` runs the others."""
BY_OPENCODE = "opencode-rlm"
"""The one that needs tools of the installed plugin; a light program is the others' OpenCode."""
REWARDS = {"opencode-rlm": 0.0, "world": 3.0}
"""Where it is not 1: nobody answers, and three apples are sold."""
FILES = {"my_worlds.py": r"```python\n(# my_worlds.py\n.*?)```", "rows.jsonl": r"cat > rows.jsonl <<'END'\n(.*?)END\n"}
"""Where the documents have the files that these commands read."""


@dataclass(frozen=True)
class Alone:
    """An environment with the sandbox, verifiers and nothing else of ours, and what was run in it."""

    environment: Path
    command: subprocess.CompletedProcess[str]
    evaluation: FinishedEvaluation | None


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


def install(environment: Path, *wheels: str) -> None:
    """Install wheels, and the verifiers under test as a user gets it: the release, or with pre-releases enabled."""
    wanted = [f"verifiers=={VERIFIERS}", *(["--prerelease", "allow"] if VERIFIERS.is_prerelease else [])]
    uv("pip", "install", "--quiet", "--python", str(environment / "bin" / "python"), *wanted, *wheels, cwd=ROOT)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheels of all members, by package."""
    place = tmp_path_factory.mktemp("wheels")
    uv("build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(place), cwd=ROOT)
    return {wheel.name.partition("-")[0]: wheel for wheel in place.glob("*.whl")}


@pytest.fixture(scope="module")
def alone(wheels: dict[str, Path], shared_home: UserHome, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """What it is before `installed` puts the other wheels there: Python compiles verifiers once for both."""
    environment = tmp_path_factory.mktemp("elsewhere") / "venv"
    uv("venv", "--quiet", "--python", sys.executable, str(environment), cwd=ROOT)
    install(environment, str(wheels["rollout_sandbox"]))
    program = environment / "bin" / "opencode-sandboxes"
    code = (
        "import importlib.util as found, rollout_sandbox, runpy, sys\n"
        "assert all(getattr(rollout_sandbox, name) for name in rollout_sandbox.__all__)\n"
        "assert not any(found.find_spec(name) for name in ('opencode_env', 'opencode_rubrics', 'mathverdict'))\n"
        f"sys.argv = [{str(program)!r}, '--help']\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    command = subprocess.run([program.with_name("python"), "-c", code], capture_output=True, text=True, check=False)

    def policy(request: ChatRequest, /) -> Reply:
        return Reply(text="done") if request.turn else call("bash", command="echo hello > /app/made.txt")

    async def run() -> FinishedEvaluation:
        program = environment.parent / "vf-eval"
        program.write_text(f'#!/bin/sh\nexec {environment}/bin/vf-eval "$@"\n')  # executed, not forked
        program.chmod(0o755)
        runtime = ["--env.agent.runtime.type", "custom"]
        runtime += ["--env.agent.runtime.import-path", "rollout_sandbox.ConfinedBackend"]
        taskset = ["--env.taskset.id", "plain-tasks", "--env.agent.harness.id", "bash"]
        async with ScriptedModel(policy) as model:
            return await shared_home.run("plain", model.base_url, *taskset, *runtime, program=program)

    return Alone(environment, command, asyncio.run(run()) if AFTER_0_4_0 else None)


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], alone: Alone) -> Installed:
    """All wheels installed."""
    extras = {"opencode_env": "[conformance]"}
    install(alone.environment, *(f"{wheel}{extras.get(name, '')}" for name, wheel in wheels.items()))
    return Installed(wheels, alone.environment)


def names_in(wheel: Path) -> Sequence[str]:
    """The files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_there_is_a_wheel_for_each_member(installed: Installed) -> None:
    assert set(installed.wheels) == set(PACKAGES)


@pytest.mark.parametrize("wheel", PACKAGES)
def test_a_wheel_holds_every_file_of_its_packages_and_nothing_else(installed: Installed, wheel: str) -> None:
    wanted = {
        f"{source.name}/{path.relative_to(source)}"
        for source in PACKAGES[wheel]
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in names_in(installed.wheels[wheel]) if ".dist-info/" not in name}
    assert packed == wanted
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names_in(installed.wheels[wheel]))
    assert all(f"{source.name}/py.typed" in packed for source in PACKAGES[wheel])


def test_programs_and_data_that_are_read_at_run_time_are_in_the_wheels(installed: Installed) -> None:
    for package, names in READ_AT_RUN_TIME.items():
        assert {f"{package}/{name}" for name in names} <= set(names_in(installed.wheels[package]))


class Policy:
    """Solves the samples, with opencode-rlm it asks a sub-LLM first; plays the shipped worlds and the documents'."""

    def __init__(self) -> None:
        self.samples = SamplesPolicy(1.0)
        self.worlds = WorldsPolicy()

    def __call__(self, request: ChatRequest, /) -> Reply:
        if not request.tools:
            return Reply(text="a sub-LLM's answer")
        if "llm_subcall" in request.tools:
            return Reply(text="done") if request.turn else call("llm_subcall", prompt="what is it?")
        if "shop_sell" in request.tools:
            return call("shop_sell", count=1)
        if "tracker_finish" in request.tools:
            return self.worlds(request)
        if "Think of a number." in request.prompt:
            return Reply(text="done")
        return self.samples(request)


def words(command: str, rows: Path) -> list[str]:
    """A documented command as `UserHome.run` takes it, which adds model, endpoint and `--no-push`; one task of it."""
    found = shlex.split(command)
    for option in ("-m", "--client.base-url"):
        if option in found:
            del found[found.index(option) : found.index(option) + 2]
    taskset = ["--env.taskset.id", "probe-tasks", "--env.taskset.rows", str(rows)]
    given = {"TASKSET": taskset, "SMALL": ["small-model"], "--no-push": []}
    given |= {f"configs/eval/{path.name}": [str(path)] for path in CONFIGS.iterdir()}
    return [new for word in found for new in given.get(word, [word])] + ["--select.limit", "1"]


def test_the_sandbox_alone_is_all_that_its_command_and_its_runtimes_need(alone: Alone) -> None:
    assert (alone.command.returncode, alone.command.stdout[:25]) == (0, "usage: opencode-sandboxes"), alone.command


@pytest.mark.skipif(not AFTER_0_4_0, reason="verifiers 0.4.0 makes runtimes of its own types only")
def test_the_sandbox_serves_an_environment_that_knows_nothing_of_us(alone: Alone) -> None:
    assert alone.evaluation is not None
    assert alone.evaluation.exit_code == 0, alone.evaluation.log
    (episode,) = alone.evaluation.episodes
    assert episode.traces[0].reward == 1.0, alone.evaluation.log


@pytest.fixture(scope="module")
def runs(installed: Installed, shared_home: UserHome) -> dict[str, FinishedEvaluation]:
    """The commands of the documents, each played by the installed `vf-eval`."""
    rows = write_rows(shared_home.root / "rows.jsonl", [probe("one")])
    for name, place in FILES.items():
        (found,) = re.findall(place, DOCUMENTS, re.DOTALL)
        (shared_home.work / name).write_text(found)
    path = {"PYTHONPATH": f"{shared_home.work}:{shared_home.environment()['PYTHONPATH']}"}

    async def run() -> dict[str, FinishedEvaluation]:
        async with ScriptedModel(Policy()) as model:
            return {
                name: await shared_home.run(
                    *(name, model.base_url, *words(command, rows)),
                    env=path | (REAL if name == BY_OPENCODE else {}),
                    program=installed.program("vf-eval"),
                )
                for name, command in DOCUMENTED_COMMANDS.items()
            }

    with light_opencode_in_place():
        return asyncio.run(run())


def test_the_commands_are_those_of_the_documents() -> None:
    lines = re.findall(r"^\$ vf-eval (.*?)(?: +#.*)?$", DOCUMENTS, re.MULTILINE)
    assert {*DOCUMENTED_COMMANDS.values()} <= set(lines)


@pytest.mark.parametrize("name", DOCUMENTED_COMMANDS)
def test_a_documented_command_runs_from_another_directory(
    runs: dict[str, FinishedEvaluation], shared_home: UserHome, name: str
) -> None:
    finished = runs[name]
    assert finished.exit_code == 0, finished.log
    (episode,) = finished.episodes
    assert episode.ok, finished.log
    assert episode.traces[0].reward == REWARDS.get(name, 1.0)
    names = [trace.agent.name for trace in episode.traces if trace.agent is not None]
    assert names == (["agent", "sub"] if name == "opencode-rlm" else ["agent"])
    assert shared_home.leftovers() == []


def test_what_is_installed_beside_the_wheels_is_the_verifiers_under_test(installed: Installed) -> None:
    code = "from importlib.metadata import version; print(version('verifiers'))"
    argv = [str(installed.program("python")), "-c", code]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip() == str(VERIFIERS)


def test_what_ran_was_the_installed_package(installed: Installed, shared_home: UserHome) -> None:
    code = "import opencode_env, opencode_rubrics, opencode_rlm as m\nprint(opencode_env.__file__, m.__file__)"
    (shared_home.work / "tells.py").write_text(code)
    argv = [str(installed.program("python")), "tells.py"]
    done = finished(argv, shared_home.work, shared_home.environment())
    assert done.returncode == 0, done.stderr
    assert all(Path(path).is_relative_to(installed.environment) for path in done.stdout.split())


def test_the_scripted_model_is_a_program_of_the_installed_package(installed: Installed, shared_home: UserHome) -> None:
    argv = [str(installed.program("python")), "-m", "opencode_env.scripted_model", "--help"]
    done = finished(argv, shared_home.work, shared_home.environment())
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
    done = finished(argv, shared_home.work, shared_home.environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_a_sound_answer_is_a_finished_rollout_with_its_reward" in done.stdout
