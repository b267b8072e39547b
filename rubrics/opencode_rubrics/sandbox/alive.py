"""Tells a failed command from a dead sandbox.

Container engines report a vanished container as an ordinary non-zero exit. Before a failure is blamed on the
policy, one bounded probe decides whether there is still a sandbox to blame it on.
"""

import asyncio

import verifiers.v1 as vf

_PROBE_TIMEOUT = 30.0


async def require_alive(runtime: vf.Runtime, doing: str) -> None:
    """Return if the sandbox still runs commands.

    Raises:
        vf.SandboxError: It does not, or gave no answer in 30 seconds; the message says what was `doing`.
    """
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            alive = await runtime.alive()
    except TimeoutError:
        alive = False
    if not alive:
        raise vf.SandboxError(f"sandbox {runtime.name!r} is gone while {doing}")
