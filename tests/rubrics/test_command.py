"""A command runs as asked, its output stays bounded, and its deadline holds in every sandbox."""

import asyncio
import time

import pytest
import verifiers.v1 as vf
from opencode_rubrics import run_command
from rollout_sandbox.compat import backend_of
from rollout_sandbox.conformance.subject import runs

from tests.support.machine import assert_no_longer
from tests.support.waiting import until


async def running(box: vf.Runtime, marker: str) -> str:
    """Command lines in the sandbox that hold `marker`, which is not in this one's own."""
    head, tail = marker[:3], marker[3:]
    script = f'for f in /proc/[0-9]*/cmdline; do tr "\\0" " " <"$f" | grep -F {head}""{tail}; done 2>/dev/null; true'
    return (await box.run(["sh", "-c", script], {})).stdout


async def test_a_command_runs_in_its_workdir_with_the_words_as_they_are(box: vf.Runtime) -> None:
    await box.run(["mkdir", "-p", "/tmp/a 'b' $(c)"], {})
    result = await run_command(box, 'pwd; cat; echo "it\'s" >&2; exit 3', workdir="/tmp/a 'b' $(c)", timeout=20)
    assert (result.stdout, result.stderr, result.exit_code) == ("/tmp/a 'b' $(c)\n", "it's\n", 3)
    assert (result.ok, result.timed_out) == (False, False)
    assert 0 < result.duration < 20


async def test_a_workdir_that_does_not_exist_is_a_failure(box: vf.Runtime) -> None:
    result = await run_command(box, "true", workdir="/nowhere", timeout=20)
    assert result.exit_code == 125
    assert "/nowhere" in result.stderr


async def test_of_endless_output_only_the_end_is_kept(box: vf.Runtime) -> None:
    result = await run_command(box, "seq 1 300000; echo last", workdir="/tmp", timeout=60)
    assert result.ok
    assert len(result.stdout) <= 2000
    assert result.stdout.endswith("300000\nlast\n")


async def test_a_command_that_runs_out_of_time_is_dead_with_all_it_started(box: vf.Runtime) -> None:
    # One child stays in the group, one leaves it, one leaves it and ignores signals.
    command = (
        "sleep 1234501 & setsid sleep 1234502 & "
        "setsid sh -c 'trap \"\" TERM; sleep 1234503; sleep 1234503' & echo begun; sleep 1234504"
    )
    started = time.monotonic()
    result = await run_command(box, command, workdir="/tmp", timeout=1)
    taken = time.monotonic() - started
    assert (result.timed_out, result.ok, result.stdout) == (True, False, "begun\n")
    assert await running(box, "12345") == ""
    assert_no_longer(taken, 9)


async def test_an_exit_code_of_its_own_is_no_timeout(box: vf.Runtime) -> None:
    result = await run_command(box, "exit 124", workdir="/tmp", timeout=20)
    assert (result.exit_code, result.timed_out) == (124, False)


async def test_a_service_that_a_command_starts_is_not_waited_for_and_lives_on(box: vf.Runtime) -> None:
    result = await run_command(box, "sleep 98765 & echo up", workdir="/tmp", timeout=20)
    assert result.ok
    assert "sleep 98765" in await running(box, "98765")
    assert_no_longer(result.duration, 10)


async def test_without_room_for_its_output_a_command_still_runs(confined: vf.Runtime) -> None:
    assert (await confined.run(["chmod", "000", "/tmp"], {})).exit_code == 0
    result = await run_command(confined, "exit 5", workdir="/app", timeout=20)
    assert (result.exit_code, result.stdout) == (5, "")


@pytest.mark.podman
@pytest.mark.slow
async def test_where_the_sandbox_has_no_timeout_program_the_host_keeps_the_deadline(container: vf.Runtime) -> None:
    await container.run(["rm", "/usr/bin/timeout"], {})
    result = await run_command(container, "sleep 1234501 & setsid sleep 1234502", workdir="/tmp", timeout=1)
    assert result.timed_out
    assert await running(container, "12345") == ""


async def test_a_sandbox_that_is_gone_is_an_error_and_no_timeout(confined: vf.Runtime) -> None:
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await run_command(confined, "true", workdir="/tmp", timeout=5)


async def test_a_sandbox_that_goes_while_a_command_runs_is_an_error(confined: vf.Runtime) -> None:
    command = asyncio.create_task(run_command(confined, "sleep 60", workdir="/tmp", timeout=50))
    await until(lambda: runs(confined, "sleep 60"))
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await command


async def test_a_cancelled_command_is_dead(confined: vf.Runtime) -> None:
    command = asyncio.create_task(run_command(confined, "sleep 1234501", workdir="/tmp", timeout=50))
    await until(lambda: running(confined, "1234501"))
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    assert await running(confined, "1234501") == ""
