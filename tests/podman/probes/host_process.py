"""Runs on the host: start a container, name it, stay until it is ended; or ("exit") leave, with stdin, no teardown."""

import asyncio
import signal
import sys

from agent_sandbox.podman import PodmanBackend, PodmanRuntime, provision_podman
from agent_sandbox.verifiers_versions import PodmanConfig, own_container
from verifiers.v1.runtimes.base import register


def name(runtime: PodmanRuntime) -> None:
    assert runtime._container is not None
    print(runtime._container.name, flush=True)


async def stay(image: str) -> None:
    async with provision_podman(PodmanConfig(image=image)) as runtime:
        name(runtime)
        await runtime.run(["sleep", "1000"], {})


async def leave(image: str) -> PodmanRuntime:
    runtime = own_container(PodmanBackend, PodmanConfig(image=image))
    assert isinstance(runtime, PodmanRuntime)
    register(runtime)  # type: ignore[arg-type,unused-ignore]
    await runtime.start()
    name(runtime)
    return runtime


if __name__ == "__main__":
    # A shell's background jobs ignore this signal, and Python leaves it at that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "exit" in sys.argv:
        kept = asyncio.new_event_loop().run_until_complete(leave(sys.argv[1]))
        sys.stdin.read()
    else:
        asyncio.run(stay(sys.argv[1]))
