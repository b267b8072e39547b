"""What a user chooses about a podman container, under 0.4.0 with the options of verifiers' own."""

from rollout_sandbox.compat import AFTER_0_4_0

if AFTER_0_4_0:
    from typing import Self

    from pydantic import model_validator
    from verifiers.v1.configs.runtime import CustomRuntimeConfig, NetworkPolicyConfig
    from verifiers.v1.runtimes import CustomRuntimeInfo

    PodmanRuntimeInfo = CustomRuntimeInfo

    class PodmanConfig(CustomRuntimeConfig, NetworkPolicyConfig):
        """A podman container on this machine."""

        import_path: str = "rollout_sandbox.PodmanBackend"
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

else:
    from verifiers.v1.runtimes import PodmanConfig as PodmanConfig
    from verifiers.v1.runtimes import PodmanRuntimeInfo as PodmanRuntimeInfo
