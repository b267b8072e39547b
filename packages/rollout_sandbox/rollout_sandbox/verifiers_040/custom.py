"""`type custom`, a runtime that any environment can name by the path of its backend.

0.4.0 makes runtimes of its own types only, so there a backend of ours is made by our own environments.
"""

from rollout_sandbox.verifiers_040.installed import AFTER_0_4_0

if AFTER_0_4_0:
    from verifiers.v1.configs.runtime import CustomRuntimeConfig as CustomRuntimeConfig
    from verifiers.v1.runtimes import CustomRuntimeInfo as CustomRuntimeInfo
else:
    from typing import Literal

    from pydantic import ConfigDict
    from pydantic_config import BaseConfig
    from verifiers.v1.runtimes import BaseRuntimeInfo

    class CustomRuntimeConfig(BaseConfig):
        """The options of such a runtime."""

        type: Literal["custom"] = "custom"
        import_path: str

    class CustomRuntimeInfo(BaseRuntimeInfo):
        """What a trace says of it."""

        model_config = ConfigDict(extra="allow")
        type: Literal["custom"] = "custom"
        import_path: str
