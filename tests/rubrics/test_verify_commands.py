"""Verify commands score what the agent left, and nothing that it planted."""

import asyncio
import json
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_rubrics import VerifyCommandsConfig, VerifyCommandsRubric
from rollout_sandbox.compat import backend_of
from rollout_sandbox.conformance.subject import runs

from tests.rubrics.conftest import CheckedData, trace_of
from tests.support.machine import assert_no_longer
from tests.support.waiting import until

WRITE = "echo {} > /logs/verifier/reward.txt"
OPTED_IN = {"reward_file": True}


async def score(
    box: vf.Runtime, *verify: str, command_timeout: float = 30, options: Any = None, **data: Any
) -> vf.Trace[Any, Any, Any]:
    """The trace of a rollout scored by these commands; `options` are the rubric's."""
    task = CheckedData(prompt="?", verify=list(verify), **{"workdir": "/tmp", **data})
    trace = trace_of(task)
    rubric = VerifyCommandsRubric(VerifyCommandsConfig(command_timeout=command_timeout, **(options or {})))
    await rubric.score(task, trace, box)
    return trace


async def reward(box: vf.Runtime, *verify: str, **options: Any) -> float:
    trace = await score(box, *verify, **options)
    assert trace.rewards.keys() == {"verify"}
    return trace.reward


async def test_the_reward_is_the_share_of_commands_that_pass(box: vf.Runtime) -> None:
    trace = await score(box, "echo out; echo err >&2", "exit 3", "test -d /tmp", "true")
    assert trace.reward == 0.75
    assert trace.metrics == {"verify_passed": 3.0, "verify_total": 4.0, "answer_unreadable": 0.0}
    first, second, *_ = json.loads(json.dumps(trace.info["verify"]))
    assert 0 < first.pop("duration") < 30
    said = {"command": "echo out; echo err >&2", "stdout": "out\n", "stderr": "err\n"}
    assert first == {**said, "exit_code": 0, "timed_out": False}
    assert second["exit_code"] == 3


async def test_commands_run_in_order_and_in_the_tasks_workdir(box: vf.Runtime) -> None:
    await box.run(["mkdir", "-p", "/tmp/work"], {})
    assert await reward(box, "pwd > one", "test $(cat one) = /tmp/work", workdir="/tmp/work") == 1.0


async def test_a_command_may_write_the_reward_itself(box: vf.Runtime) -> None:
    assert await reward(box, WRITE.format("0.125"), "false", options=OPTED_IN) == 0.125
    below = OPTED_IN | {"reward_min": -1}
    assert await reward(box, "printf ' -2e-1 \\n' > /logs/verifier/reward.txt", options=below) == -0.2


@pytest.mark.parametrize(
    "planted",
    [
        "mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt",
        "mkdir -p /logs/verifier && echo 1 > /logs/verifier/reward.txt && chmod 500 /logs/verifier",
        "mkdir -p /logs/verifier/a/b && touch /logs/verifier/a/b/c && chmod 000 /logs/verifier/a",
        "mkdir /tmp/own && echo 1 > /tmp/own/reward.txt && ln -s /tmp/own /logs/verifier",
        "mkdir -p /logs/verifier && ln -s /tmp/own.txt /logs/verifier/reward.txt && echo 1 > /tmp/own.txt",
        "mkfifo /logs/verifier",
        "echo 1 > /logs/verifier",
        "ln -s /nowhere /logs/verifier",
        "mkdir -p /logs/verifier/reward.txt",
    ],
)
async def test_what_the_agent_planted_is_gone_before_the_first_command(box: vf.Runtime, planted: str) -> None:
    anew = "rm -rf /logs/verifier /tmp/own /tmp/own.txt && mkdir -p /logs"
    done = await box.run(["sh", "-c", f"{anew} && {planted}"], {})
    assert done.exit_code == 0, done.stderr
    look = "cat /tmp/own/reward.txt /tmp/own.txt 2>/dev/null"
    written = f'[ -z "$(ls -A /logs/verifier)" ] && {WRITE.format("0.5")} && [ "$({look})" != 0.5 ]'
    trace = await score(box, written, options=OPTED_IN)
    assert (trace.reward, trace.metrics["verify_passed"]) == (0.5, 1)


@pytest.mark.parametrize(
    ("command", "content"),
    [
        ("echo abc > /logs/verifier/reward.txt", "'abc'"),
        ("echo nan > /logs/verifier/reward.txt", "'nan'"),
        ("echo inf > /logs/verifier/reward.txt", "'inf'"),
        ("echo 1e999 > /logs/verifier/reward.txt", "'1e999'"),
        ("echo 1_0 > /logs/verifier/reward.txt", "'1_0'"),
        ("echo 1 2 > /logs/verifier/reward.txt", "'1 2'"),
        (": > /logs/verifier/reward.txt", "''"),
        ("ln -s /etc/hostname /logs/verifier/reward.txt", "symlink"),
        ("mkfifo /logs/verifier/reward.txt", "not a file"),
        ("mkdir /logs/verifier/reward.txt", "not a file"),
        ("truncate -s 5G /logs/verifier/reward.txt", "oversized"),
        ("printf '1\\0' > /logs/verifier/reward.txt", "binary"),
        ("printf '\\377' > /logs/verifier/reward.txt", "binary"),
    ],
)
async def test_a_reward_file_that_is_no_finite_number_is_a_zero_with_a_reason_and_a_warning(
    shared_confined: vf.Runtime, command: str, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    trace = await score(shared_confined, command, options=OPTED_IN)
    assert trace.reward == 0
    assert "/logs/verifier/reward.txt" in trace.info["reward_file"]
    assert content in trace.info["reward_file"]
    assert trace.info["reward_file"] in caplog.text


@pytest.mark.parametrize("number", ["1e9", "-5", "1.001", "-0.001"])
async def test_a_reward_beyond_the_bounds_is_a_zero(shared_confined: vf.Runtime, number: str) -> None:
    trace = await score(shared_confined, WRITE.format(number), options=OPTED_IN)
    assert trace.reward == 0
    assert "not in [0, 1]" in trace.info["reward_file"]
    wide = await score(shared_confined, WRITE.format(number), options=OPTED_IN | {"reward_min": -5, "reward_max": 1e9})
    assert wide.reward == float(number)
    assert "reward_file" not in wide.info


async def test_a_reward_file_that_nobody_asked_for_is_a_zero_and_told_of(
    box: vf.Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    trace = await score(box, WRITE.format("1"), "true")
    assert trace.reward == 0
    assert '"reward_file": true' in trace.info["reward_file"]
    assert '"reward_file": true' in caplog.text
    silent = await score(box, "true", "false")
    assert (silent.reward, "reward_file" in silent.info) == (0.5, False)


async def test_a_reward_that_nobody_wrote_is_a_zero_where_it_was_asked_for(box: vf.Runtime) -> None:
    assert await reward(box, WRITE.format("1"), options=OPTED_IN) == 1.0
    trace = await score(box, "true", options=OPTED_IN)
    assert trace.reward == 0
    assert "no verify command wrote" in trace.info["reward_file"]


def test_bounds_without_a_reward_file_or_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="set reward_file = true"):
        VerifyCommandsConfig(reward_max=2)
    with pytest.raises(ValueError, match="swap them"):
        VerifyCommandsConfig(reward_file=True, reward_min=2)


async def test_an_empty_reward_file_of_a_command_that_failed_is_a_zero(box: vf.Runtime) -> None:
    assert await reward(box, "false > /logs/verifier/reward.txt", "true", options=OPTED_IN) == 0


async def test_a_command_out_of_time_is_the_policys_doing_and_dead(box: vf.Runtime) -> None:
    trace = await score(box, "while :; do sleep 0.1; done", "true", verify_timeout=1.0)
    record = trace.info["verify"][0]
    assert (trace.reward, record["timed_out"]) == (0.5, True)
    assert record["duration"] >= 1
    assert_no_longer(record["duration"], 9)


async def test_the_rubrics_own_timeout_holds_where_the_row_has_none(shared_confined: vf.Runtime) -> None:
    trace = await score(shared_confined, "sleep 30", command_timeout=0.5)
    assert trace.info["verify"][0]["timed_out"]


async def test_a_task_without_verify_commands_is_an_error(shared_confined: vf.Runtime) -> None:
    with pytest.raises(vf.TaskError, match="needs a task with verify commands"):
        await score(shared_confined)
    plain = vf.TaskData(prompt="?")
    with pytest.raises(vf.TaskError, match="needs a task with verify commands"):
        await VerifyCommandsRubric(VerifyCommandsConfig()).score(plain, trace_of(plain), shared_confined)


async def test_a_sandbox_that_is_gone_before_scoring_is_an_error(confined: vf.Runtime) -> None:
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await score(confined, "true")


async def test_a_sandbox_that_goes_during_scoring_is_an_error(confined: vf.Runtime) -> None:
    scoring = asyncio.create_task(score(confined, "true", "sleep 30", "true"))
    await until(lambda: runs(confined, "sleep 30"))
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await scoring


@pytest.mark.podman
async def test_a_container_that_goes_during_scoring_is_an_error(container: vf.Runtime) -> None:
    # A container engine reports this as a non-zero exit of the command.
    scoring = asyncio.create_task(score(container, "true", "sleep 30", "true"))
    await until(lambda: runs(container, "sleep 30"))
    await asyncio.to_thread(backend_of(container).cleanup)
    with pytest.raises(vf.SandboxError, match="is gone"):
        await scoring


async def test_a_sandbox_whose_engine_reports_its_end_as_an_exit_code_is_an_error_too(
    confined: vf.Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `docker exec` in a container that is gone."""
    run = confined.run

    async def exits(argv: list[str], env: dict[str, str]) -> vf.ProgramResult:
        try:
            return await run(argv, env)
        except vf.SandboxError:
            return vf.ProgramResult(exit_code=137, stdout="", stderr="no such container")

    monkeypatch.setattr(confined, "run", exits)
    scoring = asyncio.create_task(score(confined, "true", "sleep 30"))
    await until(lambda: runs(confined, "sleep 30"))
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await scoring


async def test_a_verifier_directory_that_cannot_be_made_is_a_zero_with_a_reason(
    shared_confined: vf.Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    await shared_confined.run(["sh", "-c", "rm -rf /logs/verifier; chmod 555 /logs"], {})
    trace = await score(shared_confined, f"{WRITE.format(0)} || true", options=OPTED_IN)
    assert trace.reward == 0
    assert "/logs/verifier cannot be made new" in trace.info["reward_file"]
    assert trace.info["reward_file"] in caplog.text
    assert await reward(shared_confined, "true", "false") == 0.5
