"""Runs on the host: provision a sandbox, report it, and stay until it is ended, or ("exit") leave without teardown."""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack

from rollout_sandbox.confined import ConfinedRuntime, LocalSandboxConfig, provision_confined


async def busy(runtime: ConfinedRuntime, marker: str) -> None:
    await runtime.run_background(["sh", "-c", f"setsid sleep {marker} & sleep {marker}"], {}, "log")
    await runtime.run(["true"], {})
    print("ready", flush=True)


async def stay(marker: str) -> None:
    async with provision_confined(LocalSandboxConfig(), name=marker) as runtime:
        assert isinstance(runtime, ConfinedRuntime)
        await busy(runtime, marker)
        await asyncio.sleep(1000)


async def leave(marker: str) -> AsyncExitStack:
    stack = AsyncExitStack()
    await busy(await stack.enter_async_context(provision_confined(LocalSandboxConfig(), name=marker)), marker)
    return stack


if __name__ == "__main__":
    # A shell's background jobs ignore this signal, and Python leaves it at that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "exit" in sys.argv:
        kept = asyncio.new_event_loop().run_until_complete(leave(sys.argv[1]))
    else:
        asyncio.run(stay(sys.argv[1]))
