"""Commands in a podman container: what they see, what they return, and that they end when asked to."""

import asyncio
from functools import partial

import pytest
from rollout_sandbox.conformance.subject import runs
from rollout_sandbox.podman import PodmanRuntime
from rollout_sandbox.podman.runtime import without_proxy
from verifiers.v1.errors import SandboxError

from tests.support.waiting import until

from .conftest import container_of

pytestmark = pytest.mark.podman


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
