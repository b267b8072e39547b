"""A runtime that any environment can name by the path of its backend.

0.4.1 (dev52) brought `type custom`. 0.4.0 makes runtimes of its own types only, so a backend is a name there. When
0.4.0 is no longer supported, this becomes a part of `own_runtime`.
"""

from abc import ABC, abstractmethod
from typing import Any

from verifiers.v1.configs.runtime import NetworkPolicyConfig

from agent_sandbox.verifiers_versions.installed import AFTER_0_4_0
from agent_sandbox.verifiers_versions.own_runtime import OwnRuntime

if AFTER_0_4_0:
    from verifiers.v1.configs.runtime import CustomRuntimeConfig
    from verifiers.v1.runtimes import CustomRuntimeInfo, RuntimeBackend

    from agent_sandbox.verifiers_versions.own_runtime import OwnBackend

    class NamedConfig(CustomRuntimeConfig, NetworkPolicyConfig):
        """What a user says of a runtime that is named by its path."""

    class NamedBackend(OwnBackend, ABC):
        """Makes a runtime of ours for whoever names its path; a subclass says which, and what its configuration is."""

        def __init__(self, config: Any, name: str | None = None) -> None:
            RuntimeBackend.__init__(self, name)
            self.runtime = self.made(config)
            self.config = config
            self.info = CustomRuntimeInfo(**config.model_dump())

        @abstractmethod
        def made(self, config: Any) -> OwnRuntime:
            """The runtime, not started yet, with `backend=self`."""

        async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
            """Nothing: the runtime keeps its promise about the network all the time."""

else:

    class NamedConfig(NetworkPolicyConfig):
        """What a user says of a runtime that is named by its path."""

        import_path: str

    class NamedBackend:
        """Names a runtime; verifiers 0.4.0 itself makes runtimes of its own types only."""

        runtime: OwnRuntime

        async def start(self) -> None:
            """Start it."""
            await self.runtime.start()
