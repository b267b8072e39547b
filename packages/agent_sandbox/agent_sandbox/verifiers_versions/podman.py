"""How users name a podman container, and what verifiers then makes.

0.4.0: `type podman`, with a configuration and a runtime of verifiers' own. 0.4.1 (dev52) has neither; a runtime of ours
is named there as `type custom` with the path of a backend. When 0.4.0 is no longer supported, this becomes the module
of that backend.
"""

from typing import Any, ClassVar

from verifiers.v1.runtimes import BaseRuntimeInfo

from agent_sandbox.verifiers_versions.installed import AFTER_0_4_0
from agent_sandbox.verifiers_versions.own_runtime import OwnRuntime

if AFTER_0_4_0:
    from typing import Self

    from pydantic import model_validator
    from verifiers.v1.configs.runtime import CustomRuntimeConfig, NetworkPolicyConfig
    from verifiers.v1.errors import SandboxError
    from verifiers.v1.runtimes import CustomRuntimeInfo, RuntimeBackend

    from agent_sandbox.verifiers_versions.own_runtime import OwnBackend

    class PodmanConfig(CustomRuntimeConfig, NetworkPolicyConfig):
        """A podman container on this machine."""

        import_path: str = "agent_sandbox.PodmanBackend"
        """What makes it."""
        image: str = "docker.io/library/python:3.11-slim"
        """Its image, which podman pulls when this machine has none of that name."""
        workdir: str | None = None
        """Work directory; None uses the task's, or /app. Made when the image has none."""
        cpu: float | None = None
        """Cores. None: no limit."""
        memory: float | None = None
        """Memory in GB. None: no limit."""
        gpu: str | None = None
        """How many NVIDIA GPUs, by the names that the NVIDIA container toolkit gave them. None: no GPU."""
        disk: float | None = None
        """GB that a task asks for; not enforced, podman has no limit that works on every storage."""
        run_options: list[str] = []
        """Further options of `podman run`, each one word: `--ulimit=nofile=1024:1024`, `--volume=/data:/data:ro`.
        Those of podman itself, such as the OCI runtime, belong into containers.conf."""

        @model_validator(mode="after")
        def _whole_network_or_none(self) -> Self:
            if self.network_restricted and self.allow:
                raise ValueError(
                    f"a podman container cannot filter its network by name (allow {self.allow}, block {self.block}): "
                    'use allow = [] (only the rollout\'s own endpoints while the agent runs) or allow = ["*"], or the '
                    "docker or prime runtime"
                )
            return self

    def podman_info(config: PodmanConfig) -> BaseRuntimeInfo:
        """What a trace says of the container."""
        return CustomRuntimeInfo(**config.model_dump())

    class ContainerBackend(OwnBackend):
        """The backend of a container runtime of ours; a subclass names the runtime and its configuration."""

        SUPPORTS_TASK_IMAGES = True
        SUPPORTS_USER_SWITCHING = True
        SUPPORTS_PORT_EXPOSURE = True
        RUNTIME: ClassVar[type[Any]]

        def __init__(self, config: Any, name: str | None = None) -> None:
            RuntimeBackend.__init__(self, name)
            self.runtime = self.RUNTIME(config, backend=self)

        async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
            """Enforce the policy, or `network`, for the agent; without routes, lift it.

            Raises:
                SandboxError: `network` allows some names only.
            """
            if network is not None and network.network_restricted and network.allow:
                raise SandboxError(f"container {self.name} cannot filter its network by name (allow {network.allow})")
            await self.runtime.prepare_execution(routes)

else:
    from verifiers.v1.runtimes import PodmanConfig as PodmanConfig
    from verifiers.v1.runtimes import PodmanRuntimeInfo

    def podman_info(config: PodmanConfig) -> BaseRuntimeInfo:
        """What a trace says of the container."""
        return PodmanRuntimeInfo(**config.model_dump())

    class ContainerBackend:
        """Names a runtime; verifiers 0.4.0 itself makes runtimes of its own types only."""

        RUNTIME: ClassVar[type[Any]]


def own_container(backend: type[ContainerBackend], config: PodmanConfig) -> OwnRuntime:
    """A container runtime of ours, not started yet, for a caller that provisions it itself."""
    if AFTER_0_4_0:
        return backend(config).runtime
    else:
        runtime: OwnRuntime = backend.RUNTIME(config)
        return runtime
