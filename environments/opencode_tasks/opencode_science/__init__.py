"""Questions of science as a verifiers environment, under the plugin id `opencode-science`."""

import verifiers.v1 as vf
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskset
from opencode_math import OpenCodeMathTasksetConfig
from opencode_tasks.presets import OpenCodeProblemEnv, preset

__all__ = ["OpenCodeProblemEnv", "OpenCodeScienceTaskset"]


@preset(dataset_subset="science", difficulty_key="avg@16_qwen3_4b_instruct_2507")
class OpenCodeScienceTasksetConfig(OpenCodeMathTasksetConfig):
    """The science of INTELLECT-3-RL, scored by the file that the agent writes."""


class OpenCodeScienceTaskset(OpenCodeTaskset, vf.Taskset[OpenCodeTask, OpenCodeScienceTasksetConfig]):  # type: ignore[type-var]
    """Questions with one answer; every option of `OpenCodeTaskset` works here."""
