"""Runs on the host: start a container, name it, stay until it is ended; or ("exit") leave at SIGUSR1, no teardown."""

import asyncio
import signal
import sys

from rollout_sandbox.podman import PodmanBackend, PodmanConfig, PodmanRuntime, provision_podman
from verifiers.v1.runtimes.base import register


def name(runtime: PodmanRuntime) -> None:
    print(runtime.backend.container.name, flush=True)


async def stay(image: str) -> None:
    async with provision_podman(PodmanConfig(image=image)) as runtime:
        name(runtime)
        await runtime.run(["sleep", "1000"], {})


async def leave(image: str) -> PodmanRuntime:
    runtime = PodmanBackend(PodmanConfig(image=image)).bind()
    register(runtime.backend)  # type: ignore[arg-type,unused-ignore]
    await runtime.backend.start()
    name(runtime)
    signal.sigwait([signal.SIGUSR1])
    return runtime


if __name__ == "__main__":
    # A shell's background jobs ignore this signal, and Python leaves it at that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "exit" in sys.argv:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        kept = asyncio.new_event_loop().run_until_complete(leave(sys.argv[1]))
    else:
        asyncio.run(stay(sys.argv[1]))
