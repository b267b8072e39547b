"""Commands in a podman container: what they see, what they return, and that they end when asked to."""

import asyncio
from functools import partial

import pytest
from agent_sandbox.confined.output import LIMIT_BYTES
from agent_sandbox.podman import PodmanConfig, PodmanRuntime, provision_podman
from agent_sandbox.podman.commands import without_proxy
from agent_sandbox.verifiers_040 import start_process
from verifiers.v1.errors import SandboxError

from tests.rubrics.math_places import image_with_agent_user
from tests.support.processes import runs
from tests.support.waiting import until

from .conftest import container_of, sh

pytestmark = pytest.mark.podman


async def test_a_command_has_its_work_directory_its_environment_and_its_exit_code(
    shared_runtime: PodmanRuntime,
) -> None:
    result = await sh(
        shared_runtime, 'pwd; printf "%s" "$WORDS" | wc -l; echo broken >&2; exit 3', WORDS="one\ntwo\nthree"
    )
    assert (result.exit_code, result.stdout, result.stderr) == (3, "/app\n2\n", "broken\n")
    assert (await shared_runtime.run(["no-such-program"], {})).exit_code == 127
    assert await shared_runtime.alive()


async def test_a_command_is_over_when_its_own_process_is(shared_runtime: PodmanRuntime) -> None:
    async with asyncio.timeout(100):
        assert (await sh(shared_runtime, "sleep 1000 & echo started")).stdout == "started\n"


async def test_an_agent_that_prints_a_gigabyte_is_kept_in_bounded_memory(shared_runtime: PodmanRuntime) -> None:
    result = await sh(shared_runtime, "echo first; head -c 1000000000 /dev/zero; echo last")
    assert result.exit_code == 0
    assert len(result.stdout) <= LIMIT_BYTES
    assert result.stdout.startswith("first\n")
    assert "bytes left out" in result.stdout
    assert result.stdout.endswith("last\n")


async def test_a_cancelled_command_is_ended_with_all_that_it_started(shared_runtime: PodmanRuntime) -> None:
    task = asyncio.ensure_future(sh(shared_runtime, "setsid sleep 2001 & (setsid sleep 2002 &); sleep 2003"))
    for number in ("2001", "2002", "2003"):
        await until(partial(runs, shared_runtime, f"sleep {number}"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for number in ("2001", "2002", "2003"):
        assert not await runs(shared_runtime, f"sleep {number}")


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2])
async def test_a_command_that_is_cancelled_while_podman_starts_it_does_not_run_on(
    shared_runtime: PodmanRuntime, delay: float
) -> None:
    task = asyncio.ensure_future(shared_runtime.run(["sleep", "2004"], {}))
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await runs(shared_runtime, "sleep 2004")


async def test_a_live_process_is_talked_to_and_ended(shared_runtime: PodmanRuntime) -> None:
    process = await start_process(
        shared_runtime, ["sh", "-c", "while read -r line; do echo got $line; done; exit 4"], {}
    )
    await process.write(b"one\n")
    assert await anext(process.stdout) == b"got one\n"
    assert await process.poll() is None
    await process.kill()
    assert await process.wait() == 137
    assert await process.poll() == 137


async def test_a_live_process_is_asked_to_end(shared_runtime: PodmanRuntime) -> None:
    script = "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.1; done"
    process = await start_process(shared_runtime, ["sh", "-c", script], {})
    assert await anext(process.stdout) == b"on\n"
    await process.terminate()
    assert b"".join([chunk async for chunk in process.stdout]) == b"bye\n"
    assert await process.wait() == 5


async def test_a_background_process_writes_its_log_and_outlives_its_command(shared_runtime: PodmanRuntime) -> None:
    await shared_runtime.run_background(
        ["sh", "-c", 'echo "$1 & $2"; exec sleep 2005', "x", "a'b", "c d"], {}, "my log"
    )
    await until(partial(runs, shared_runtime, "sleep 2005"))
    assert (await sh(shared_runtime, "cat '/app/my log'")).stdout == "a'b & c d\n"


async def test_commands_and_files_of_another_user_are_its_own(podman_image: str) -> None:
    image = image_with_agent_user(podman_image)
    async with provision_podman(PodmanConfig(image=image)) as box:
        agent = box.with_user("agent", "/home/agent")
        assert (await agent.run(["sh", "-c", "id -un; echo $HOME"], {})).stdout == "agent\n/home/agent\n"
        await agent.write("/tmp/of-agent/file", b"mine")
        assert (await box.run(["stat", "-c", "%U", "/tmp/of-agent/file"], {})).stdout == "agent\n"
        await box.run(["sh", "-c", "umask 077; echo secret >/tmp/closed"], {})
        with pytest.raises(SandboxError, match="Permission denied"):
            await agent.read("/tmp/closed")
        assert (await box.run(["id", "-un"], {})).stdout == "root\n"


async def test_a_container_that_goes_in_mid_command_is_a_sandbox_error(runtime: PodmanRuntime) -> None:
    task = asyncio.ensure_future(runtime.run(["sleep", "2006"], {}))
    await until(partial(runs, runtime, "sleep 2006"))
    killed = await asyncio.create_subprocess_exec("podman", "kill", container_of(runtime))
    assert await killed.wait() == 0
    with pytest.raises(SandboxError, match="is gone while a command ran in it"):
        await task
    assert not await runtime.alive()


def test_a_proxy_of_the_image_is_not_asked_for_the_loopback() -> None:
    assert without_proxy({"A": "1"}, {"PATH": "/bin", "NO_PROXY": "x"}) == {"A": "1"}
    found = without_proxy({"A": "1"}, {"http_proxy": "http://p", "NO_PROXY": "inner, other"})
    assert found == {"A": "1", "NO_PROXY": "inner,other,localhost,127.0.0.1", "no_proxy": found["NO_PROXY"]}
