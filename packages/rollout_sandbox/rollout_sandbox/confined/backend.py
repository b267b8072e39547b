"""What `--env.agent.runtime.type custom --env.agent.runtime.import-path rollout_sandbox.ConfinedBackend` names.

The sandbox of any environment of verifiers after 0.4.0. It reaches the endpoints of its own rollout and nothing else,
whatever network a task asks for; a task that names hosts is refused.
"""

import asyncio
from typing import Self

from pydantic import Field, model_validator
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import TaskError

from rollout_sandbox.compat import CustomRuntimeConfig, CustomRuntimeInfo
from rollout_sandbox.confined.arguments import require_private_workdir
from rollout_sandbox.confined.bubblewrap import require_bubblewrap
from rollout_sandbox.confined.config import LocalSandboxConfig
from rollout_sandbox.confined.runtime import BubblewrapBackend
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR


class ConfinedConfig(LocalSandboxConfig, CustomRuntimeConfig, NetworkPolicyConfig):
    """The confined local sandbox, with the options of `LocalSandboxConfig`."""

    import_path: str = "rollout_sandbox.ConfinedBackend"
    """What makes it."""
    workdir: str = Field(DEFAULT_WORKDIR, pattern="^/")
    """Work directory; made when the sandbox starts."""

    @model_validator(mode="after")
    def _what_it_can_be(self) -> Self:
        if not self.confine:
            raise ValueError("confine false is not a sandbox: use the runtime type subprocess")
        if self.network_restricted and (self.allow or self.network == "host"):
            raise ValueError(
                "the confined sandbox reaches its rollout's own endpoints and nothing else: use allow = [] with "
                "network = 'interception', or the docker or prime runtime"
            )
        return self


class ConfinedBackend(BubblewrapBackend):
    """The confined sandbox, named by its path.

    Raises:
        TaskError: it cannot have this work directory, or the task names hosts that it must reach.
    """

    SUPPORTS_TASK_IMAGES = False
    SUPPORTS_PORT_EXPOSURE = True
    config_class = ConfinedConfig

    def __init__(self, config: ConfinedConfig, name: str | None = None) -> None:
        if config.network_restricted and config.allow:
            raise TaskError(f"the confined sandbox has no way to the hosts that the task names ({config.allow})")
        require_private_workdir(config.workdir)
        super().__init__(config, name=name, workdir=config.workdir)
        self.config = config
        self.info = CustomRuntimeInfo(**config.model_dump())

    async def start(self) -> None:
        await asyncio.to_thread(require_bubblewrap)
        await super().start()
