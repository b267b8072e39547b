"""A box without confinement, for harnesses of verifiers that refuse the subprocess runtime (verifiers > 0.4.0).

It stands for a container on machines that have no container engine; what it costs is left out of every comparison.
"""

from rollout_sandbox.compat import AFTER_0_4_0

if AFTER_0_4_0:
    from typing import Any

    from verifiers.v1.configs.runtime import CustomRuntimeConfig, SubprocessConfig
    from verifiers.v1.runtimes.backends.custom import CustomRuntimeInfo
    from verifiers.v1.runtimes.backends.subprocess import SubprocessBackend

    class OpenBoxConfig(CustomRuntimeConfig):
        """No options."""

        image: str = "none"
        workdir: str | None = None

    class OpenBox(SubprocessBackend):
        """verifiers' own subprocess runtime under another name."""

        config_class = OpenBoxConfig
        SUPPORTS_TASK_IMAGES = True
        config: Any
        info: Any

        def __init__(self, config: OpenBoxConfig, name: str | None = None) -> None:
            super().__init__(SubprocessConfig(), name)
            self.config = config
            self.info = CustomRuntimeInfo(**config.model_dump())
