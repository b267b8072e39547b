"""Commands of our own Prime runtime: their end is seen at once, whatever the way there does, or they are killed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from opencode_env.cli_agent.prime import provision_prime
from opencode_env.cli_agent.prime.errors import SandboxEndedError, SandboxMemoryError
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import PrimeConfig, ProgramResult, Runtime

from tests.support.prime_api import PrimeApi
from tests.support.waiting import until


@pytest.fixture
async def box(api: PrimeApi) -> AsyncIterator[Runtime]:
    """A sandbox that is up."""
    async with provision_prime(PrimeConfig(), 60, {"GIVEN": "value"}) as started:
        yield started


async def is_there(box: Runtime, path: str) -> bool:
    """Whether a file of the sandbox holds something."""
    return (await box.run(["test", "-s", path], {})).exit_code == 0


async def running(box: Runtime, script: str) -> "asyncio.Future[ProgramResult]":
    """A command that has come as far as writing its process id to /tmp/pid."""
    command = asyncio.ensure_future(box.run(["sh", "-c", f"echo $$ >/tmp/pid; {script}"], {}))
    async with asyncio.timeout(60):
        while not await is_there(box, "/tmp/pid"):
            await asyncio.sleep(0.02)
    return command


async def test_a_command_costs_one_request(api: PrimeApi, box: Runtime) -> None:
    before = api.requests.total()
    done = await box.run(["sh", "-c", "pwd; echo $GIVEN >&2; exit 7"], {})
    assert (done.exit_code, done.stdout, done.stderr) == (7, "/app\n", "value\n")
    assert api.requests.total() == before + 1


async def test_output_arrives_whole_as_far_as_it_is_kept(box: Runtime) -> None:
    done = await box.run(["sh", "-c", "head -c 11000000 /dev/zero | tr '\\0' x; printf 'end\\377'"], {})
    assert len(done.stdout) == 10 << 20
    assert done.stdout.endswith("xend\ufffd")


async def test_a_command_beyond_what_a_line_holds_runs_too(box: Runtime) -> None:
    pieces = ["x" * 100_000, "y" * 100_000]
    done = await box.run(["sh", "-c", 'printf %s "$1$2" | wc -c', "count", *pieces], {})
    assert done.stdout.strip() == "200000"


async def test_what_a_command_leaves_running_is_not_waited_for(box: Runtime) -> None:
    done = await box.run(["sh", "-c", "sleep 600 & echo started"], {})
    assert (done.exit_code, done.stdout) == (0, "started\n")


async def test_the_end_is_seen_when_the_stream_broke_and_was_found_again(api: PrimeApi, box: Runtime) -> None:
    command = await running(box, "until [ -e /tmp/go ]; do sleep 0.1; done; echo survived; exit 5")
    api.drop_streams()
    await box.write("/tmp/go", b"")
    done = await command
    assert (done.exit_code, done.stdout) == (5, "survived\n")
    assert api.requests["Connect"] == 1


async def test_the_end_is_looked_for_when_the_stream_is_lost(api: PrimeApi, box: Runtime) -> None:
    command = await running(box, "until [ -e /tmp/go ]; do sleep 0.1; done; echo survived; exit 5")
    (sandbox,) = api.living
    sandbox.misses = 1
    api.drop_streams()
    await until(lambda: sandbox.misses == 0)
    await box.write("/tmp/go", b"")
    done = await command
    assert (done.exit_code, done.stdout) == (5, "survived\n")


async def test_a_command_whose_shell_somebody_killed_has_ended_so_with_what_it_started(box: Runtime) -> None:
    command = await running(box, "sleep 600")
    await box.run(["sh", "-c", "kill -9 $(cut -d ' ' -f 4 /proc/$(cat /tmp/pid)/stat)"], {})
    assert (await command).exit_code == 128 + 9
    assert (await box.run(["sh", "-c", "kill -0 $(cat /tmp/pid)"], {})).exit_code != 0


async def test_a_cancelled_command_is_dead_with_all_that_it_started(box: Runtime) -> None:
    script = (
        "setsid sh -c 'echo $$ >/tmp/child; exec sleep 600' & until [ -s /tmp/child ]; do sleep 0.1; done; sleep 601"
    )
    command = await running(box, script)
    async with asyncio.timeout(60):
        while not await is_there(box, "/tmp/child"):
            await asyncio.sleep(0.02)
    command.cancel()
    await asyncio.gather(command, return_exceptions=True)
    alive = "for pid in $(cat /tmp/pid /tmp/child); do kill -0 $pid 2>/dev/null && echo $pid; done; true"
    assert (await box.run(["sh", "-c", alive], {})).stdout == ""


@pytest.mark.parametrize(("reason", "error"), [("OOM_KILLED", SandboxMemoryError), ("NODE_LOST", SandboxEndedError)])
async def test_a_sandbox_that_ends_under_a_command_says_why(
    api: PrimeApi, box: Runtime, reason: str, error: type[SandboxError]
) -> None:
    command = await running(box, "sleep 600")
    await api.end(api.living[0], reason)
    with pytest.raises(error, match=reason):
        await command
    with pytest.raises(error):
        await box.write("/tmp/file", b"data")
