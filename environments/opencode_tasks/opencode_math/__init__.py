"""Competition mathematics as a verifiers environment, under the plugin id `opencode-math`."""

import verifiers.v1 as vf
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskset
from opencode_rubrics import RemoteHybridMathConfig
from opencode_tasks.presets import OpenCodeProblemEnv, PresetTasksetConfig, preset

__all__ = ["OpenCodeMathTaskset", "OpenCodeProblemEnv"]


@preset(
    task=OpenCodeTaskConfig(rubric=RemoteHybridMathConfig(answer_path="/app/answer.txt")),
    dataset="PrimeIntellect/INTELLECT-3-RL",
    dataset_subset="math",
    dataset_split="train",
    difficulty_key="avg@8_qwen3_4b_thinking_2507",
    instruction_prompt="Solve the following problem.\n\n",
    instruction_prompt_post="\n\nWrite your final answer to `/app/answer.txt`.",
)
class OpenCodeMathTasksetConfig(PresetTasksetConfig):
    """The mathematics of INTELLECT-3-RL, scored by the file that the agent writes."""


class OpenCodeMathTaskset(OpenCodeTaskset, vf.Taskset[OpenCodeTask, OpenCodeMathTasksetConfig]):  # type: ignore[type-var]
    """Problems with one answer; every option of `OpenCodeTaskset` works here."""
