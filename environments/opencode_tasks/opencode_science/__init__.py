"""Questions of science as a verifiers environment, under the plugin id `opencode-science`."""

import verifiers.v1 as vf
from opencode_env.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskset
from opencode_rubrics import RemoteHybridMathConfig
from opencode_tasks.presets import PresetTasksetConfig, preset, preset_seat

__all__ = ["OpenCodeScienceEnv", "OpenCodeScienceTaskset"]


@preset(
    task=OpenCodeTaskConfig(rubric=RemoteHybridMathConfig(answer_path="/app/answer.txt")),
    dataset="PrimeIntellect/INTELLECT-3-RL",
    dataset_subset="science",
    dataset_split="train",
    difficulty_key="avg@16_qwen3_4b_instruct_2507",
    instruction_prompt="Solve the following problem.\n\n",
    instruction_prompt_post="\n\nWrite your final answer to `/app/answer.txt`.",
)
class OpenCodeScienceTasksetConfig(PresetTasksetConfig):
    """The science of INTELLECT-3-RL, scored by the file that the agent writes."""


class OpenCodeScienceTaskset(OpenCodeTaskset, vf.Taskset[OpenCodeTask, OpenCodeScienceTasksetConfig]):  # type: ignore[type-var]
    """Questions with one answer; every option of `OpenCodeTaskset` works here."""


@preset(agent=preset_seat(max_turns=100, seconds=3600))
class OpenCodeScienceEnvConfig(OpenCodeEnvConfig):
    """OpenCode on science, with 100 turns and an hour."""


class OpenCodeScienceEnv(OpenCodeEnv, vf.Env[OpenCodeScienceEnvConfig]):
    """Runs OpenCode on each question in a sandbox of its own and scores where it worked."""
