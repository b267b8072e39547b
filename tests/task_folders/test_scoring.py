"""Task directories score as Terminal-Bench's own runner does, and believe nothing that the agent left."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from opencode_env.cli_agent.sandboxes import build_task_image, provision_local
from opencode_rubrics import ScoringError, TaskTestsConfig
from rollout_sandbox.confined import LocalSandboxConfig
from rollout_sandbox.podman import PodmanConfig
from verifiers.v1.errors import TaskError

from tests.rubrics.conftest import trace_of
from tests.task_folders.folders import BROKEN, CONTAINERS, COUNT, FOLDERS, SOLVED, folder_task, oracle, played

pytestmark = pytest.mark.usefixtures("sandboxes")

TASKS = FOLDERS / "tasks"
REPORT = TASKS / "build-report"

Make = Callable[[str], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a task directory whose test script is this text."""

    def made(script: str) -> Path:
        folder = tmp_path / "made"
        (folder / "tests").mkdir(parents=True)
        (folder / "task.toml").write_text("[verifier]\ntimeout_sec = 20\n")
        (folder / "instruction.md").write_text("Do it.")
        (folder / "tests" / "test.sh").write_text(f"#!/bin/bash\n{script}\n")
        (folder / "tests" / "test.sh").chmod(0o755)
        return folder

    return made


@pytest.mark.parametrize("name", SOLVED)
async def test_the_oracle_scores_one_and_an_idle_agent_zero(name: str) -> None:
    task = folder_task(TASKS / name)
    solved = await played(task, oracle(TASKS / name))
    assert solved.reward == 1.0, (solved.info["agent_exit"], solved.info["tests"])
    idle = await played(task, "true")
    assert idle.reward == 0.0
    assert idle.info["tests"]["problem"] == ""


@pytest.mark.podman
@pytest.mark.parametrize("name", ["count-lines", "build-report"])
async def test_it_is_the_same_in_a_container(name: str, podman_image: str) -> None:
    task = folder_task(TASKS / name)
    assert (await played(task, oracle(TASKS / name), podman_image)).reward == 1.0
    assert (await played(task, "true", podman_image)).reward == 0.0


async def test_further_numbers_of_the_tests_are_metrics() -> None:
    half = 'printf "def slugify(t):\\n    return t.lower().strip().replace(\\" \\", \\"-\\")\\n" > slug.py'
    trace = await played(folder_task(TASKS / "fix-script"), half)
    assert trace.rewards.keys() == {"solved"}
    assert (trace.reward, trace.metrics) == (0.0, {"share": 0.25, "answer_unreadable": 0.0})


async def test_tests_that_are_broken_are_an_error_and_not_a_zero() -> None:
    with pytest.raises(ScoringError, match=r"untouched copy of the sandbox either.*no-such-test-runner"):
        await played(folder_task(BROKEN), "true")


async def test_where_nobody_gives_a_copy_a_missing_verdict_is_an_error() -> None:
    with pytest.raises(ScoringError, match="no verdict"):
        await played(folder_task(BROKEN), "true", copies=False)


LACKING = {
    "a line on the way": (
        "no-such-runner /tests; echo 0 >/logs/verifier/reward.txt",
        "no-such-runner: command not found",
    ),
    "a line of a shell below": ("sh -c no-such-runner; echo 0 >/logs/verifier/reward.txt", "no-such-runner"),
    "the exit code alone": ("echo 0 >/logs/verifier/reward.txt; exit 127", "exit code 127"),
    "one that cannot be run": ("echo 1 >/logs/verifier/reward.txt; exec /tests", "exit code 126"),
}


@pytest.mark.parametrize(("script", "told"), LACKING.values(), ids=LACKING)
async def test_tests_that_lack_a_program_are_told_and_warned_of(
    make: Make, script: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    trace = await played(folder_task(make(script)), "true")
    assert trace.reward == float("echo 1" in script)
    assert told in trace.info["tests"]["warning"]
    assert told in caplog.text


async def test_tests_that_lack_nothing_are_not_warned_of(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    trace = await played(folder_task(make("echo 0 >/logs/verifier/reward.txt; cat no-file; exit 1")), "true")
    assert (trace.reward, trace.info["tests"]["warning"]) == (0.0, "")
    assert "lacked a program" not in caplog.text


CHEATS = {
    "a planted reward": "mkdir -p /logs/verifier && echo 1 >/logs/verifier/reward.txt",
    "a planted JSON reward": "mkdir -p /logs/verifier && echo '{\"reward\": 1}' >/logs/verifier/reward.json",
    "a reward that is a link": "mkdir -p /logs/verifier && echo 1 >own && ln -s $PWD/own /logs/verifier/reward.txt",
    "a directory that is a link": "mkdir -p own && echo 1 >own/reward.txt && rm -rf /logs/verifier; "
    "mkdir -p /logs && ln -s $PWD/own /logs/verifier",
    "tests replaced": "mkdir -p /tests && printf 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh; "
    "mkdir -p /logs/tests && printf 'echo 1 >/logs/verifier/reward.txt' >/logs/tests/test.sh && chmod +x /logs/tests/*",
    "tests that are a link": "mkdir own && echo 'echo 1 >/logs/verifier/reward.txt' >own/test.sh && "
    "chmod +x own/test.sh && ln -sfn $PWD/own /logs/tests",
    "tests that are a link to the verdict": "ln -sfn verifier /logs/tests",
    "tests that are a link to the work": "ln -sfn $PWD /logs/tests",
    "tests locked": "mkdir -p /logs/tests/own && touch /logs/tests/test.sh && chmod -R 0 /logs/tests",
    "a writer that stays": "setsid sh -c 'while :; do echo 1 >/logs/verifier/reward.txt; done' >/dev/null 2>&1 &",
    "a start-up file": "for f in .bashrc .profile .bash_profile; do echo 'echo 1 >/logs/verifier/reward.txt; exit' "
    ">$HOME/$f; done",
}


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
async def test_a_cheat_gains_nothing(cheat: str) -> None:
    assert (await played(folder_task(COUNT), cheat)).reward == 0.0


@pytest.mark.parametrize("cheat", ["tests replaced", "tests that are a link", "tests locked", "a start-up file"])
async def test_and_costs_a_right_answer_nothing(cheat: str) -> None:
    assert (await played(folder_task(COUNT), f"{CHEATS[cheat]}\n{oracle(COUNT)}")).reward == 1.0


@pytest.mark.podman
@pytest.mark.parametrize("cheat", ["a directory that is a link", "tests replaced", "a writer that stays"])
async def test_a_cheat_gains_nothing_in_a_container(cheat: str, podman_image: str) -> None:
    assert (await played(folder_task(COUNT), CHEATS[cheat], podman_image)).reward == 0.0


async def test_an_agent_that_takes_the_verdict_away_gets_a_zero(make: Make) -> None:
    folder = make(
        "read -r answer <answer && [ $answer = 4 ] && echo 1 >/logs/verifier/reward.txt; [ -e answer ] || "
        "echo 0 >/logs/verifier/reward.txt"
    )
    trace = await played(folder_task(folder), "echo nonsense >answer")
    assert trace.reward == 0.0
    assert "untouched copy" in trace.info["tests"]["problem"]


async def test_tests_that_hang_only_after_the_agent_are_a_zero(make: Make) -> None:
    folder = make("[ ! -e trap ] || sleep 600; echo 0 >/logs/verifier/reward.txt")
    (folder / "task.toml").write_text("[verifier]\ntimeout_sec = 1\n")
    trace = await played(folder_task(folder), "touch trap")
    assert trace.reward == 0.0
    assert "did not end within 1 s" in trace.info["tests"]["problem"]


@pytest.mark.parametrize(
    "verdict",
    [
        "reward.txt abc",
        "reward.txt nan",
        "reward.txt 7",
        "reward.json []",
        'reward.json {"reward":"1"}',
        'reward.json {"other":1}',
        'reward.json {"reward":2}',
        'reward.json {"reward":-1}',
        'reward.json {"reward":1,"share":NaN}',
    ],
)
async def test_a_verdict_that_is_none_is_an_error_that_says_so(make: Make, verdict: str) -> None:
    name, _, content = verdict.partition(" ")
    with pytest.raises(ScoringError, match=f"untouched copy.*{name}"):
        await played(folder_task(make(f"echo '{content}' >/logs/verifier/{name}")), "true")


@pytest.mark.parametrize(
    ("made", "state"),
    [("ln -s /etc/passwd", "symlink"), ("mkfifo", "not a file"), ("head -c 99 /dev/zero >", "binary")],
)
async def test_a_reward_file_that_is_no_text_is_an_error_that_says_so(make: Make, made: str, state: str) -> None:
    with pytest.raises(ScoringError, match=f"untouched copy.*reward.txt is {state}"):
        await played(folder_task(make(f"{made} /logs/verifier/reward.txt")), "true")


async def test_a_script_that_is_not_executable_runs_with_its_own_interpreter(make: Make) -> None:
    folder = make("")
    (folder / "tests" / "test.sh").write_text(
        "#!/usr/bin/env python3\nopen('/logs/verifier/reward.txt', 'w').write('1.0\\n\\n')\n"
    )
    (folder / "tests" / "test.sh").chmod(0o644)
    assert (await played(folder_task(folder), "true")).reward == 1.0


async def test_json_goes_before_text_and_a_bound_can_be_moved(make: Make) -> None:
    folder = make(
        'echo 0 >/logs/verifier/reward.txt; echo \'{"points": 2.5, "bonus": true}\' >/logs/verifier/reward.json'
    )
    rubric = TaskTestsConfig(reward_key="points", reward_max=3)
    trace = await played(folder_task(folder, task={"rubric": rubric.model_dump()}), "true")
    assert (trace.reward, trace.metrics) == (2.5, {"bonus": 1.0, "answer_unreadable": 0.0})


async def test_the_agent_sees_no_tests_and_the_tests_see_their_own_settings(make: Make) -> None:
    folder = make(
        '[ "$MINE" = 1 ] && [ "$PWD" = /app ] && [ -f /tests/data/x ] && [ ! -e seen ]; '
        "echo $((1 - $?)) >/logs/verifier/reward.txt"
    )
    (folder / "tests" / "data").mkdir()
    (folder / "tests" / "data" / "x").touch()
    (folder / "task.toml").write_text('[verifier]\nenv = { MINE = "1" }\n')
    looking = "find / -xdev -name 'test.sh' -o -name solve.sh 2>/dev/null | grep . >seen || rm seen"
    assert (await played(folder_task(folder), looking)).reward == 1.0


@pytest.mark.parametrize(
    "artifact",
    [
        "ln -s /etc/passwd report",
        "mkdir report && ln -s / report/all",
        "mkdir report && ln -s ../.. report/up",
        "mkdir report && ln -s . report/here && ln -s here/.. report/up",
        "ln -s $PWD/other report && mkdir other",
        "mkfifo report",
        "mkdir report && head -c 40000000 /dev/urandom >report/ada",
    ],
)
async def test_an_artifact_that_leads_outside_or_is_too_large_is_a_zero(artifact: str) -> None:
    assert (await played(folder_task(REPORT), artifact)).reward == 0.0


async def test_reading_artifacts_is_no_work_of_the_loop() -> None:
    """Links whose targets have many parts; `PurePath.parents` of each part took it seconds a link."""
    took = []
    for target in ("a", "d/" * 1000):
        begun = time.thread_time()
        links = f"for n in $(seq 20); do ln -s {target} report/$n; done"
        assert (await played(folder_task(REPORT), f"mkdir report; {links}")).reward == 0.0
        took.append(time.thread_time() - begun)
    assert took[1] < 5 * took[0]


async def test_a_sandbox_that_is_none_is_refused(tmp_path: Path) -> None:
    task = folder_task(shutil.copytree(COUNT, tmp_path / "count"))
    async with provision_local(LocalSandboxConfig(confine=False), (), {}, str(tmp_path / "work")) as box:
        with pytest.raises(TaskError, match="this machine's own"):
            await task.setup(trace_of(task.data), box)


@pytest.mark.podman
async def test_an_image_is_built_of_its_dockerfile_once(podman_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    folder = CONTAINERS / "from-dockerfile"
    task = folder_task(folder)
    config = PodmanConfig(image=str(task.data.image))
    await build_task_image(config, task)
    await build_task_image(config, task)
    assert (await played(task, oracle(folder), podman_image)).reward == 1.0
    assert (await played(task, "true", podman_image)).reward == 0.0
