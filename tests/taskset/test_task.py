"""A task prepares its sandbox, hides what the agent must not see, and is scored by the rubric that fits."""

import asyncio
import re
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskData, OpenCodeTasksetConfig
from opencode_rubrics import AnswerConfig, AnyTrace, VerifyCommandsConfig
from pydantic import ValidationError
from pydantic_config import BaseConfig, cli
from rollout_sandbox.compat import backend_of
from rollout_sandbox.conformance.subject import runs

from tests.rubrics.conftest import confined, trace_of
from tests.support.machine import assert_no_longer
from tests.support.waiting import until

__all__ = ["confined"]


def make(config: dict[str, Any] | None = None, **data: Any) -> OpenCodeTask:
    """A task with this data."""
    return OpenCodeTask(OpenCodeTaskData(prompt="?", **data), OpenCodeTaskConfig.model_validate(config or {}))


async def scored(task: OpenCodeTask, box: vf.Runtime | None, reply: str = "") -> AnyTrace:
    trace = trace_of(task.data, reply)
    await task.score(trace, box)
    return trace


async def test_setup_commands_run_in_order_in_the_workdir(confined: vf.Runtime) -> None:
    task = make(workdir="/app/new/place", setup=["echo one > a", "cat a a > b"], verify=["test $(wc -l < b) = 2"])
    await task.setup(trace_of(task.data), confined)
    assert await confined.read("/app/new/place/b") == b"one\none\n"
    assert (await scored(task, confined)).reward == 1.0


async def test_nothing_of_the_check_is_in_the_sandbox_before_scoring(confined: vf.Runtime) -> None:
    task = make(setup=["echo ready"], verify=["test SECRET = SECRET"], answer="SECRET")
    await task.setup(trace_of(task.data), confined)
    script = "grep -rl SEC''RET /app /tmp /home /logs /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true"
    assert (await confined.run(["sh", "-c", script], {})).stdout == ""


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("echo why >&2; exit 7", "exit code 7: why"),
        ("echo only stdout; exit 1", "exit code 1: only stdout"),
        ("false", "exit code 1, no output"),
        ("no-such-program", "exit code 127"),
        ("kill -9 $$", "exit code 137"),
    ],
)
async def test_a_setup_command_that_fails_is_an_error_with_its_output(
    confined: vf.Runtime, command: str, how: str
) -> None:
    task = make(setup=["true", command, "touch /app/reached"], verify=["true"])
    with pytest.raises(vf.TaskError, match="setup command") as caught:
        await task.setup(trace_of(task.data), confined)
    assert repr(command) in str(caught.value)
    assert how in str(caught.value)
    assert (await confined.run(["test", "-e", "/app/reached"], {})).exit_code == 1


async def test_a_setup_command_out_of_time_is_an_error(confined: vf.Runtime) -> None:
    taken = []
    for task in (
        make({"setup_timeout": 0.5}, setup=["sleep 60"], verify=["true"]),
        make({"setup_timeout": 50}, setup=["sleep 60"], setup_timeout=0.5, verify=["true"]),
    ):
        with pytest.raises(vf.TaskError) as caught:
            await task.setup(trace_of(task.data), confined)
        found = re.search(r"'sleep 60' failed \(timed out after (\d+\.\d) s, no output\)", str(caught.value))
        assert found is not None, caught.value
        taken.append(float(found[1]))
    assert_no_longer(max(taken), 1)


async def test_a_workdir_that_cannot_be_made_is_an_error(confined: vf.Runtime) -> None:
    task = make(workdir="/etc/hostname/x", verify=["true"])
    with pytest.raises(vf.TaskError, match="workdir '/etc/hostname/x' cannot be made"):
        await task.setup(trace_of(task.data), confined)


async def test_a_sandbox_that_goes_during_setup_is_an_error_of_the_sandbox(confined: vf.Runtime) -> None:
    task = make(setup=["sleep 60"], verify=["true"])
    preparing = asyncio.create_task(task.setup(trace_of(task.data), confined))
    await until(lambda: runs(confined, "sleep 60"))
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await preparing


async def test_the_row_decides_the_rubric_unless_one_is_named(confined: vf.Runtime) -> None:
    assert (await scored(make(answer="1"), confined, "1")).rewards.keys() == {"exact_answer"}
    assert (await scored(make(answer="1", verify=["true"]), confined)).rewards.keys() == {"verify"}
    named = make({"rubric": {"type": "answer"}}, answer="1", verify=["true"])
    assert (await scored(named, confined, "1")).rewards.keys() == {"exact_answer"}


async def test_the_options_of_the_rubric_reach_it(confined: vf.Runtime) -> None:
    task = make({"rubric": {"type": "verify-commands", "command_timeout": 0.5}}, verify=["sleep 60"])
    assert (await scored(task, confined)).info["verify"][0]["timed_out"]
    elsewhere = make({"rubric": {"type": "answer", "answer_path": "/tmp/a"}}, answer="7")
    await confined.write("/tmp/a", b"7")
    assert (await scored(elsewhere, confined)).reward == 1.0


async def test_rewards_plugged_in_by_config_are_recorded_next_to_the_rubrics(confined: vf.Runtime) -> None:
    plugged = {"rewards": {"bonus": {"fn": "tests.taskset.test_task:bonus", "weight": 0.5}}}
    trace = await scored(make(plugged, verify=["true"]), confined)
    assert trace.rewards.keys() == {"verify", "bonus"}
    assert trace.reward == 1.5


async def bonus() -> float:
    """A reward of a user's own."""
    return 1.0


async def test_a_rollout_whose_setup_ran_out_of_time_is_not_scored(confined: vf.Runtime) -> None:
    task = make(verify=["true"])
    trace = trace_of(task.data)
    trace.record_timeout("setup")
    await task.score(trace, confined)
    assert trace.rewards == {}


async def test_deferred_scoring_and_scoring_without_a_sandbox_leave_no_reward() -> None:
    assert (await scored(make(verify=["true"]).defer_scoring(), None)).rewards == {}
    assert (await scored(make(verify=["true"]), None)).rewards == {}


def test_the_rubric_is_set_on_the_command_line() -> None:
    class Run(BaseConfig):
        taskset: OpenCodeTasksetConfig = OpenCodeTasksetConfig()

    def parsed(*args: str) -> OpenCodeTaskConfig:
        return cli(Run, args=list(args)).taskset.task

    prefix = "--taskset.task.rubric"
    assert parsed(f"{prefix}.type", "verify-commands", f"{prefix}.command-timeout", "30").rubric == (
        VerifyCommandsConfig(command_timeout=30)
    )
    assert parsed(f"{prefix}.type", "answer", f"{prefix}.answer-path", "/a").rubric == AnswerConfig(answer_path="/a")
    assert parsed("--taskset.task.setup-timeout", "5").setup_timeout == 5.0
    assert parsed().rubric is None


def test_a_config_survives_the_way_to_a_worker() -> None:
    config = OpenCodeTasksetConfig(
        dataset="a.jsonl", task=OpenCodeTaskConfig(rubric=VerifyCommandsConfig(command_timeout=9))
    )
    assert OpenCodeTasksetConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    "config",
    [
        {"rubric": {"type": "unknown"}},
        {"rubric": {"command_timeout": 5}},
        {"rubric": {"type": "answer", "command_timeout": 5}},
        {"rubric": {"type": "verify-commands", "command_timeout": 0}},
        {"setup_timeout": float("inf")},
    ],
)
def test_a_config_that_makes_no_sense_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenCodeTaskConfig.model_validate(config)
