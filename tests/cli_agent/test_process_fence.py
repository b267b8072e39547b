"""In a container or a Prime sandbox, what the agent started is ended by identity; what was there before lives on."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from opencode_env.cli_agent.process_fence import ProcessFence
from rollout_sandbox.compat import backend_of
from rollout_sandbox.conformance.subject import LIST_PROCESSES
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import Runtime

from tests.rubrics.math_places import image_with_agent_user
from tests.support.places import Container, Prime, ScriptedContainer
from tests.support.prime_api import PrimeApi
from tests.support.rollouts import lone_box
from tests.support.waiting import until

pytestmark = [pytest.mark.podman, pytest.mark.asyncio(loop_scope="module")]

TOOL_SERVER = "VF_STATE_SECRET=s sh -c 'sleep 5000 & while :; do sleep 0.1; sh -c \"exec sleep 5.5\" & wait $!; done'"
"""A tool server that goes on starting children."""


FENCES = pytest.mark.parametrize("kind", [Container, ScriptedContainer])
"""Our own runtime ends the agent's processes from outside; elsewhere scripts in the container do."""


@pytest_asyncio.fixture(loop_scope="module", params=[Container, ScriptedContainer, Prime])
async def box(request: pytest.FixtureRequest, podman_image: str, prime_api: PrimeApi) -> AsyncIterator[Runtime]:
    async with lone_box(request.param(podman_image)) as box:
        yield box


async def marked(box: Runtime) -> ProcessFence:
    fence = ProcessFence(box)
    await fence.mark((await box.run(["sh", "-c", fence.mark_script], {})).stdout)
    return fence


async def sleeping(box: Runtime) -> set[str]:
    """The numbers that the sleeping processes in the box were started with."""
    lines = (await box.run(["sh", "-c", LIST_PROCESSES], {})).stdout.splitlines()
    return {line.split()[1] for line in lines if line.startswith("sleep ")} - {"infinity"}


async def background(box: Runtime, command: str, *numbers: str) -> None:
    """Start a command, and wait until sleeps of these numbers of seconds run."""
    await box.run_background(["sh", "-c", command], {}, "/tmp/log")

    async def started() -> bool:
        return set(numbers) <= await sleeping(box)

    await until(started)


async def test_only_the_agents_own_processes_are_ended(box: Runtime) -> None:
    await background(box, "sleep 1000", "1000")
    await background(box, TOOL_SERVER, "5000")
    fence = await marked(box)
    await background(
        box, "sleep 2000 & setsid nohup sleep 2001 & (trap '' TERM HUP INT; sleep 2002) & wait", "2000", "2001", "2002"
    )
    await background(box, "setsid sh -c '(setsid env -i sleep 2003 &) ; exit 0'", "2003")
    await background(box, "VF_STATE_SECRET=forged exec sleep 2004", "2004")
    assert {"2000", "2001", "2002", "2003", "2004"} <= await sleeping(box)
    await fence.end()
    left = await sleeping(box)
    assert {number for number in left if number.startswith("2")} == set()
    assert {"1000", "5000"} <= left

    async def still_serving() -> bool:
        return bool({"5.5", "0.1"} & await sleeping(box))

    await until(still_serving)
    await fence.end()


async def test_processes_that_fork_faster_than_one_can_count_are_ended(box: Runtime) -> None:
    fence = await marked(box)
    await box.run(["sh", "-c", "printf 'sleep 0.01\\nsetsid sh /tmp/chain &\\n' > /tmp/chain"], {})
    for _ in range(5):
        await background(box, "sh /tmp/chain")
    await fence.end()
    await asyncio.sleep(0.3)  # whatever is left of a chain would go on in it
    listed = (await box.run(["sh", "-c", LIST_PROCESSES], {})).stdout
    assert "sh /tmp/chain" not in listed


@FENCES
async def test_a_container_that_is_gone_is_a_sandbox_error(kind: type[Container], podman_image: str) -> None:
    async with lone_box(kind(podman_image)) as box:
        fence = await marked(box)
        backend_of(box).cleanup()
        with pytest.raises(SandboxError, match="could not be ended"):
            await fence.end()


async def test_a_sandbox_that_shares_this_machines_processes_is_refused(podman_image: str) -> None:
    async with lone_box(ScriptedContainer(podman_image)) as box:
        with pytest.raises(SandboxError, match="shares this machine's processes"):
            await ProcessFence(box).mark(f"namespace={os.readlink('/proc/self/ns/pid')}\n1 1 -\n")


async def test_without_a_mark_nothing_is_ended(box: Runtime) -> None:
    await background(box, "sleep 3000", "3000")
    await ProcessFence(box).end()
    assert "3000" in await sleeping(box)


@FENCES
async def test_a_process_whose_first_thread_has_ended_is_ended_too(kind: type[Container], podman_image: str) -> None:
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(7346,)).start();"
        "ctypes.CDLL(None).syscall(60, 0)"
    )
    look = "for s in /proc/[0-9]*/status; do grep -q '^State:.*Z' $s && grep '^Threads:.*2' $s; done; true"
    async with lone_box(kind(image_with_agent_user(podman_image))) as box:
        fence = await marked(box)
        await box.run_background(["python3", "-c", code], {}, "/tmp/threads")

        async def lives_without_a_leader() -> bool:
            return bool((await box.run(["sh", "-c", look], {})).stdout)

        await until(lives_without_a_leader)
        await fence.end()
        assert not await lives_without_a_leader()
