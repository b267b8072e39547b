"""Programming problems as a verifiers environment, under the plugin id `opencode-cp`."""

import verifiers.v1 as vf
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskset
from opencode_rubrics import CodeTestsConfig
from opencode_tasks.presets import OpenCodeProblemEnv, PresetTasksetConfig, preset

__all__ = ["OpenCodeCPTaskset", "OpenCodeProblemEnv"]


@preset(
    task=OpenCodeTaskConfig(rubric=CodeTestsConfig(answer_path="/app/answer.py")),
    dataset="PrimeIntellect/INTELLECT-3-RL",
    dataset_subset="code",
    dataset_split="train",
    tests_key="info",
    difficulty_key="avg@8_qwen3_4b_instruct_2507",
    instruction_prompt="Solve the following programming problem in Python. Available packages: Python standard library."
    "\n\n",
    instruction_prompt_post="\n\nSave your final solution to `/app/answer.py`.",
)
class OpenCodeCPTasksetConfig(PresetTasksetConfig):
    """The programming problems of INTELLECT-3-RL, scored by tests that the agent does not see."""


class OpenCodeCPTaskset(OpenCodeTaskset, vf.Taskset[OpenCodeTask, OpenCodeCPTasksetConfig]):  # type: ignore[type-var]
    """Problems with tests; every option of `OpenCodeTaskset` works here."""
