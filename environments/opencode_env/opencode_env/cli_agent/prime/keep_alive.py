"""A sandbox is kept alive while its rollout goes on, whatever the platform takes for idle.

So `idle_timeout` ends what a process left behind that was killed, and no agent whose one command is silent for long.
"""

import asyncio
import logging
from typing import Any

from opencode_env.cli_agent.prime.errors import SDK_ERRORS

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.prime")

_MINUTE_S = 60.0
_TIMES = 3
"""Commands within the time after which a sandbox counts as idle."""
_ANSWER_S = 30


async def keep_alive(client: Any, sandbox_id: str, idle_minutes: int) -> None:
    """Run a command that does nothing, again and again, until it is cancelled."""
    while True:
        await asyncio.sleep(idle_minutes * _MINUTE_S / _TIMES)
        try:
            await client.execute_command(sandbox_id, "true", timeout=_ANSWER_S)
        except SDK_ERRORS as error:  # what becomes of the sandbox, the rollout's own commands say
            logger.info("prime sandbox %s could not be kept alive: %s", sandbox_id, error)
