"""The actions of a Terminal-Bench 2 environment: what they do, what they refuse, and each defect of OpenEnv's own."""

import asyncio
import contextlib
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opencode_env.check_tasks.check import CheckEnv, TaskSandbox
from opencode_openenv.tbench2 import Tbench2Action, Tbench2Environment, terminals
from opencode_openenv.tbench2 import environment as environment_module
from opencode_openenv.tbench2.environment import SessionLog
from opencode_openenv.tbench2.models import ActionType, Tbench2Observation
from opencode_openenv.tbench2.settings import VARIABLES
from opencode_openenv.tbench2.terminals import MAX_OUTPUT_CHARS
from opencode_rubrics import ScoringError
from rollout_sandbox.podman import PodmanConfig
from verifiers.v1.errors import TaskError
from verifiers.v1.runtimes import DockerConfig

from tests.rubrics.math_places import image_with_agent_user
from tests.support.machine import patience
from tests.support.programs import finished
from tests.support.waiting import PATIENCE_SECONDS, until
from tests.task_folders.folders import BROKEN, CONTAINERS, SOLVED, oracle
from tests.tbench2.conftest import TASKS, MakeEnvironment


def act(environment: Tbench2Environment, kind: str, **fields: object) -> Tbench2Observation:
    """What came of an action."""
    return environment.step(Tbench2Action.model_validate({"action_type": kind, **fields}))


def sh(environment: Tbench2Environment, command: str, **fields: object) -> str:
    """The output of a command that exits 0."""
    seen = act(environment, "exec", command=command, **fields)
    assert (seen.success, seen.info["exit_code"]) == (True, 0), seen
    return seen.output


@pytest.mark.parametrize("name", SOLVED)
def test_the_oracle_scores_one_and_an_idle_agent_zero(make_environment: MakeEnvironment, name: str) -> None:
    environment = make_environment()
    begun = environment.reset(task_id=name)
    assert (begun.task_id, begun.reward, begun.done) == (name, 0.0, False)
    assert begun.instruction == (TASKS / name / "instruction.md").read_text().strip()
    assert begun.info["verifier_timeout_sec"] == 60.0
    sh(environment, oracle(TASKS / name))
    solved = act(environment, "evaluate")
    assert (solved.reward, solved.done, solved.info["tests_passed"], solved.info["exit_code"]) == (1.0, True, True, 0)
    environment.reset(task_path=name)
    idle = act(environment, "evaluate")
    assert (idle.reward, idle.done, idle.info["tests_passed"]) == (0.0, True, False)


def test_broken_tests_are_an_error_and_no_score(make_environment: MakeEnvironment) -> None:
    environment = make_environment(BROKEN.name, tasks_dir=BROKEN.parent)
    with pytest.raises(ScoringError, match="untouched copy"):
        act(environment, "evaluate")


def test_a_failing_command_is_one_that_ran(environment: Tbench2Environment) -> None:
    seen = act(environment, "exec", command="echo out; echo err >&2; exit 3")
    assert (seen.success, seen.error, seen.info) == (True, "", {"exit_code": 3})
    assert seen.output == "out\nerr\n"
    assert environment.state.last_output == seen.output


@pytest.mark.parametrize(
    "text",
    [
        "it's",
        'say "hi"',
        "$HOME `id` $(id) \\ \\n",
        "'; touch /tmp/out; echo '",
        "EOF",
        "a & b | c > d",
        "ünïcode ✓",
        "%s\t!!",
    ],
)
def test_quotes_and_here_documents_arrive_as_they_were_written(environment: Tbench2Environment, text: str) -> None:
    assert sh(environment, f"cat <<'END_OF_IT'\n{text}\nEND_OF_IT") == f"{text}\n"
    act(environment, "write_file", file_path="made/by me.txt", content=text)
    assert sh(environment, "cat 'made/by me.txt'") == text
    assert sh(environment, "ls /tmp/out 2>/dev/null || true") == ""


def test_a_command_longer_than_an_argument_may_be_runs(environment: Tbench2Environment) -> None:
    body = "x" * 300_000
    assert sh(environment, f"cat <<'E' | wc -c\n{body}\nE").strip() == "300001"


def test_a_huge_output_is_cut_at_its_head(environment: Tbench2Environment) -> None:
    output = sh(environment, "yes 0123456789 | head -c 1000000; echo the end")
    assert len(output) < MAX_OUTPUT_CHARS + 100
    assert output.startswith("[")
    assert output.endswith("the end\n")


def test_a_time_limit_holds_and_ends_all_that_was_started(make_environment: MakeEnvironment) -> None:
    environment = make_environment("count-lines", command_timeout_s=patience(1.0))
    started = time.monotonic()
    seen = act(environment, "exec", command="echo begun; (trap '' TERM; setsid sleep 4242) & sleep 4242")
    assert time.monotonic() - started < PATIENCE_SECONDS
    assert not seen.success
    assert re.search(r"did not end within \S+ s", seen.error)
    assert (seen.output, seen.info) == ("begun\n", {"exit_code": None})
    assert sh(environment, "grep -l [4]242 /proc/[0-9]*/cmdline 2>/dev/null || true") == ""


def test_a_command_reads_nothing_and_leaves_what_it_started_on_purpose(environment: Tbench2Environment) -> None:
    assert sh(environment, "cat; setsid sleep 4243 >/dev/null 2>&1 & wc -c") == "0\n"
    assert sh(environment, "grep -l [4]243 /proc/[0-9]*/cmdline 2>/dev/null | wc -l") == "1\n"


def test_several_live_sessions_stand_beside_each_other(environment: Tbench2Environment) -> None:
    for name in ("one", "two"):
        loop = 'while read -r line; do echo "$line!"; done'
        act(environment, "exec", command=loop, block=False, session_id=name)
    act(environment, "write", session_id="one", command="first")
    act(environment, "write", session_id="two", command="second\n")
    seen = dict.fromkeys(("one", "two"), "")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(seen.values()) and time.monotonic() < deadline:
        for name in seen:
            seen[name] += act(environment, "view", session_id=name).output
    assert seen == {"one": "first!\n", "two": "second!\n"}
    assert sh(environment, "echo beside") == "beside\n"
    assert act(environment, "kill", session_id="one").success
    with pytest.raises(ValueError, match=r"no session 'one' \(there are: two\)"):
        act(environment, "view", session_id="one")
    act(environment, "exec", command="echo again; exit 5", block=False, session_id="one")
    ended = act(environment, "wait", session_id="one", wait_seconds=60)
    assert (ended.output, ended.info) == ("again\n", {"exit_code": 5})


def test_a_wait_ends_when_its_time_is_over(environment: Tbench2Environment) -> None:
    act(environment, "exec", command="echo early; sleep 600", block=False)
    output = ""
    while not output:
        seen = act(environment, "wait", wait_seconds=0.5)
        output += seen.output
        assert (seen.session_id, seen.info) == ("tb2-session", {"exit_code": None})
    assert output == "early\n"


def test_close_ends_an_episode_and_is_no_mistake_where_it_has_ended(make_environment: MakeEnvironment) -> None:
    environment = make_environment()
    assert act(environment, "close").done
    environment.reset(task_id="count-lines")
    assert act(environment, "evaluate").reward == 0.0
    for _ in range(2):
        ended = act(environment, "close")
        assert (ended.done, ended.reward, ended.success, ended.action_type) == (True, None, True, "close")
    with pytest.raises(ValueError, match="call reset first"):
        act(environment, "evaluate")


def test_wrong_use_is_an_error_that_names_it(make_environment: MakeEnvironment) -> None:
    environment = make_environment()
    with pytest.raises(ValueError, match="call reset first"):
        act(environment, "exec", command="true")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "needs a task_id.*count-lines"),
        ({"task_id": "no-such"}, "no task 'no-such'"),
        ({"task_id": 3}, "task_id is 3"),
        ({"task_path": ["count-lines"]}, "task_path is"),
        ({"task_id": "a\0b"}, "task_id is"),
        ({"task_id": "count-lines", "difficulty": 3}, "not difficulty"),
    ]
    for options, reason in wrong:
        with pytest.raises(ValueError, match=reason):
            environment.reset(**options)
    environment.reset(task_name="count-lines")
    actions: list[tuple[str, dict[str, Any], str]] = [
        ("exec", {"command": " "}, "needs a command"),
        ("write", {"command": "x"}, "no session 'tb2-session'"),
        ("write_file", {}, "needs a file_path"),
        ("wait", {"session_id": "x", "wait_seconds": 1e6}, "at most 600"),
        ("exec", {"command": "a\0b"}, "NUL"),
    ]
    for kind, fields, reason in actions:
        with pytest.raises(ValueError, match=reason):
            act(environment, kind, **fields)
    act(environment, "exec", command="sleep 600", block=False)
    with pytest.raises(ValueError, match="still runs"):
        act(environment, "exec", command="true", block=False)
    assert act(environment, "close").done
    with pytest.raises(ValueError, match="call reset first"):
        act(environment, "exec", command="true")


@pytest.mark.parametrize("path", ["..", "../broken/no-verdict", "/etc", "count-lines/../../broken/no-verdict", "link"])
def test_no_path_leaves_the_tasks_directory(make_environment: MakeEnvironment, tmp_path: Path, path: str) -> None:
    root = shutil.copytree(TASKS, tmp_path / "all" / "tasks")
    shutil.copytree(BROKEN, tmp_path / "all" / "broken" / "no-verdict")
    (root / "link").symlink_to("../broken/no-verdict")
    environment = make_environment(tasks_dir=root)
    with pytest.raises(ValueError, match=r"task_path .* leads out of the tasks' directory"):
        environment.reset(task_path=path)
    with pytest.raises(ValueError, match=r"task_id .* leads out of the tasks' directory"):
        environment.reset(task_id=path)


def test_what_scores_is_nowhere_in_the_sandbox_before_it_scores(environment: Tbench2Environment) -> None:
    names = "-name test.sh -o -name solve.sh -o -name task.toml"
    assert sh(environment, f"find / -xdev \\( {names} \\) 2>/dev/null || true") == ""
    assert sh(environment, "ls /tests/ 2>/dev/null || echo nothing") == "nothing\n"


def test_the_sandbox_has_no_network_and_nothing_of_the_host(environment: Tbench2Environment, tmp_path: Path) -> None:
    assert sh(environment, f"ls {tmp_path} 2>/dev/null || echo nothing") == "nothing\n"
    assert sh(environment, "cat /proc/net/route | wc -l").strip() in ("0", "1")


def test_episodes_do_not_share_a_task_directory(make_environment: MakeEnvironment) -> None:
    first, second = make_environment("count-lines"), make_environment("count-lines")
    sh(first, "echo changed >access.log")
    assert "503" in sh(second, "cat access.log")
    assert "503" in (TASKS / "count-lines" / "environment" / "access.log").read_text()


HOSTILE = {
    "a planted reward": "mkdir -p /logs/verifier && echo 1 >/logs/verifier/reward.txt",
    "tests replaced": "mkdir -p /logs/tests && printf 'echo 1 >/logs/verifier/reward.txt' >/logs/tests/test.sh",
    "a linked output": "mkdir -p own && echo 1 >own/reward.txt && mkdir -p /logs && ln -sfn $PWD/own /logs/verifier",
}


@pytest.mark.parametrize("command", HOSTILE.values(), ids=HOSTILE)
def test_a_cheat_scores_zero(environment: Tbench2Environment, command: str) -> None:
    sh(environment, command)
    writes = "while :; do echo 1 >/logs/verifier/reward.txt; done 2>/dev/null"
    act(environment, "exec", command=writes, block=False, session_id="w")
    sh(environment, "setsid sh -c 'while :; do echo 1 >/logs/verifier/reward.txt; done' >/dev/null 2>&1 &")
    seen = act(environment, "evaluate")
    assert (seen.reward, seen.info["tests_passed"]) == (0.0, False)


def test_each_session_has_a_log_below_the_episodes_directory(make_environment: MakeEnvironment, tmp_path: Path) -> None:
    environment = make_environment()
    environment.reset(task_id="count-lines", episode_id="../../outside")
    assert environment.state.episode_id == "../../outside"
    sh(environment, "echo hello", session_id="../../here")
    assert (tmp_path / "logs" / "count-lines.outside" / "here.log").read_text() == "$ exec echo hello\nhello\n"


async def test_it_works_on_the_callers_event_loop_and_a_cancelled_call_ends_its_sandbox(
    make_environment: MakeEnvironment,
) -> None:
    environment = make_environment()
    await environment.reset_async(task_id="count-lines")
    assert (await environment.step_async(Tbench2Action(command="echo hi"))).output == "hi\n"
    running = asyncio.create_task(environment.step_async(Tbench2Action(command="sleep 15")))
    await until(lambda: environment.state.last_command == "sleep 15")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not environment.state.terminal_ready)
    with pytest.raises(ValueError, match="call reset first"):
        await environment.step_async(Tbench2Action(command="true"))


async def test_an_episode_that_begins_while_the_last_one_ends_keeps_its_sandbox(
    make_environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, may_end = threading.Event(), threading.Event()

    made = CheckEnv.box

    @contextlib.asynccontextmanager
    async def box(env: CheckEnv, task: Any) -> AsyncIterator[TaskSandbox]:
        async with made(env, task) as sandbox:
            yield sandbox
            if not ending.is_set():
                ending.set()
                await asyncio.to_thread(may_end.wait)

    monkeypatch.setattr(CheckEnv, "box", box)
    environment = make_environment()
    await environment.reset_async(task_id="count-lines")
    closing = asyncio.create_task(environment.step_async(Tbench2Action(action_type=ActionType.CLOSE)))
    try:
        await until(ending.is_set)
        await environment.reset_async(task_id="count-lines")
    finally:
        may_end.set()
        await closing
    assert (await environment.step_async(Tbench2Action(command="echo hi"))).output == "hi\n"


async def test_an_evaluation_that_is_cancelled_leaves_no_sandbox(
    make_environment: MakeEnvironment, tmp_path: Path
) -> None:
    tasks = shutil.copytree(TASKS, tmp_path / "tasks")
    (tasks / "count-lines" / "tests" / "test.sh").write_text("#!/bin/sh\nsleep 4244\n")
    environment = make_environment(tasks_dir=tasks)
    await environment.reset_async(task_id="count-lines")
    scoring = asyncio.create_task(environment.step_async(Tbench2Action(action_type=ActionType.EVALUATE)))
    await until(lambda: running("sleep 4244"))
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    await until(lambda: not running("sleep 4244"))
    with pytest.raises(ValueError, match="call reset first"):
        await environment.step_async(Tbench2Action(command="true"))


def running(command: str) -> bool:
    """Whether a process of this machine has this command line."""
    wanted = command.replace(" ", "\0").encode() + b"\0"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == wanted:
                return True
    return False


def test_a_task_with_an_image_is_never_run_elsewhere(make_environment: MakeEnvironment) -> None:
    environment = make_environment(tasks_dir=CONTAINERS)
    with pytest.raises(TaskError, match="TB2_MODE"):
        environment.reset(task_id="from-dockerfile")


@pytest.mark.podman
def test_a_task_with_an_image_runs_in_podman(
    make_environment: MakeEnvironment, podman_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    environment = make_environment(
        "from-dockerfile", tasks_dir=CONTAINERS, mode="podman", command_timeout_s=patience(4.0)
    )
    assert sh(environment, "pwd; cat built.txt") == "/srv/site\nbuilt\n"
    assert not act(environment, "exec", command="sleep 600").success
    sh(environment, oracle(CONTAINERS / "from-dockerfile"))
    seen = act(environment, "evaluate")
    assert (seen.reward, str(seen.info["docker_image"]).startswith("localhost/opencode-task:")) == (1.0, True)


@pytest.mark.podman
def test_the_tasks_agent_user_is_who_acts(make_environment: MakeEnvironment, tmp_path: Path, podman_image: str) -> None:
    folder = shutil.copytree(TASKS / "count-lines", tmp_path / "tasks" / "count-lines")
    (folder / "task.toml").write_text('[agent]\nuser = "agent"\n[environment]\nworkdir = "/home/agent"\n')
    runtime = PodmanConfig(image=image_with_agent_user(podman_image))
    environment = make_environment("count-lines", tasks_dir=folder.parent, runtime=runtime)
    act(environment, "write_file", file_path="mine/note", content="x")
    seen = sh(environment, "id -un; stat -c %U mine/note; echo $HOME; pwd")
    assert seen == "agent\nagent\n/home/agent\n/home/agent\n"
    act(environment, "exec", command="id -un", block=False)
    assert act(environment, "wait", wait_seconds=60).output == "agent\n"
    (folder / "task.toml").write_text('[agent]\nuser = "nobody-there"\n')
    with pytest.raises(TaskError, match="nobody-there"):
        environment.reset(task_id="count-lines")


@pytest.mark.podman
def test_time_limits_hold_in_containers_that_verifiers_runs(
    make_environment: MakeEnvironment, podman_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nexec podman "$@"\n')  # the same commands, where there is no docker
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(environment_module, "WRITE_FILE_SECONDS", 3.0)
    environment = make_environment(
        "count-lines", runtime=DockerConfig(image=podman_image), command_timeout_s=patience(1.0)
    )
    seen = act(environment, "exec", command="echo begun; setsid sleep 4242 & sleep 4242")
    assert (seen.success, seen.output, seen.info) == (False, "begun\n", {"exit_code": None})
    act(environment, "exec", command="mkfifo pipe; ps() { grep -l [4]242 /proc/[0-9]*/cmdline; }; ps >left")
    with pytest.raises(ValueError, match="'pipe' could not be written within 3 s"):
        act(environment, "write_file", file_path="pipe", content="x")
    act(environment, "exec", command="cat left", metadata={"timeout_s": 60})
    assert environment.state.last_output == ""
    environment.close()  # here, where there is a docker


@pytest.mark.parametrize(
    ("name", "value"), [("TB2_MODE", "host"), ("TB2_COMMAND_TIMEOUT_S", "soon"), ("TB2_COMMAND_TIMEOUT_S", "-1")]
)
def test_a_setting_that_means_nothing_is_refused(
    make_environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}|command_timeout_s"):
        make_environment()


@pytest.mark.usefixtures("programs")
def test_help_names_every_variable_that_is_read() -> None:
    package = Path(environment_module.__file__).parent
    read = set(re.findall(r'environ\.get\("(\w+)"', "".join(file.read_text() for file in package.glob("*.py"))))
    argv = [sys.executable, "-m", "opencode_openenv.tbench2", "--help"]
    told = finished(argv, Path.cwd(), os.environ).stdout
    assert read == set(VARIABLES)
    assert all(f"\n  {name} " in told for name in read)


def test_the_settings_are_read_of_the_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"TB2_TASKS_DIR": TASKS, "TB2_OUTPUT_DIR": tmp_path, "TB2_MODE": "podman"}.items():
        monkeypatch.setenv(name, str(value))
    environment = Tbench2Environment(safe_mode=True)
    settings = environment._settings
    assert (settings.tasks_dir, settings.output_dir, settings.command_timeout_s) == (TASKS, tmp_path, 300.0)
    assert isinstance(settings.runtime, PodmanConfig)


def test_no_link_leads_a_session_log_elsewhere_and_one_that_fails_costs_no_step(
    make_environment: MakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, logs = tmp_path / "secret", tmp_path / "logs"
    secret.write_text("kept")
    environment = make_environment()
    environment.reset(task_id="count-lines", episode_id="one")
    directory = logs / "count-lines.one"
    assert directory.stat().st_mode & 0o077 == 0
    (directory / "planted.log").symlink_to(secret)
    os.mkfifo(directory / "pipe.log")
    for session in ("planted", "pipe"):
        assert sh(environment, "echo hello", session_id=session) == "hello\n"
    assert secret.read_text() == "kept"
    shutil.rmtree(directory)
    assert sh(environment, "echo hello") == "hello\n"
    (logs / "count-lines.two").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="TB2_OUTPUT_DIR"):
        environment.reset(task_id="count-lines", episode_id="two")
    (logs / "count-lines.three").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(ValueError, match="another user's: set TB2_OUTPUT_DIR"):
        SessionLog(logs, "count-lines", "three")


def test_session_logs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_module, "MAX_LOG_BYTES", 1000)
    log = SessionLog(tmp_path, "../task", "e/1")
    for number in range(200):
        log.add(f"session-{number}", "true", "")
        log.add("one", "y" * 500, "x" * 500)
    assert log.directory.parent == tmp_path
    files = list(log.directory.iterdir())
    assert len(files) <= 66
    assert all(file.stat().st_size < 3000 for file in files)


def test_the_number_of_live_sessions_is_bounded(
    environment: Tbench2Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "MAX_SESSIONS", 2)
    for name in ("one", "two"):
        act(environment, "exec", command="cat", block=False, session_id=name)
    with pytest.raises(ValueError, match="kill one first"):
        act(environment, "exec", command="cat", block=False, session_id="three")
    act(environment, "kill", session_id="one")
    act(environment, "exec", command="cat", block=False, session_id="three")


def test_a_session_that_reads_nothing_holds_no_step_up(
    environment: Tbench2Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminals, "WRITE_SECONDS", 0.2)
    act(environment, "exec", command="sleep 600", block=False)
    with pytest.raises(ValueError, match="did not read the input"):
        act(environment, "write", command="x" * 1_000_000)
    assert act(environment, "kill").info["exit_code"] != 0
