"""Tells a failed command from a dead sandbox.

Container engines report a vanished container as an ordinary non-zero exit. Before a failure is blamed on the
policy, one bounded probe decides whether there is still a sandbox to blame it on. Of a local container its engine is
asked, because an agent that is root inside can have replaced whatever would be run there.
"""

import asyncio

import verifiers.v1 as vf

from agent_sandbox.toolbox.container_engine import engine_of

_PROBE_TIMEOUT = 30.0


async def is_alive(runtime: vf.Runtime) -> bool:
    """Whether the sandbox still runs; one that gives no answer in 30 seconds does not."""
    engine = engine_of(runtime)
    if engine is not None:
        return await engine.is_running()
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            return bool(await runtime.alive())
    except TimeoutError:
        return False


async def require_alive(runtime: vf.Runtime, doing: str) -> None:
    """Return if the sandbox still runs, else raise a `SandboxError` that says what was `doing`."""
    if not await is_alive(runtime):
        raise vf.SandboxError(f"sandbox {runtime.name!r} is gone while {doing}")
