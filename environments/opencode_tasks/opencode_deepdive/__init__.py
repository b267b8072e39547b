"""Questions that need research as a verifiers environment, under the plugin id `opencode-deepdive`."""

import verifiers.v1 as vf
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskConfig, OpenCodeTaskset
from opencode_rubrics import JudgeRubricConfig
from opencode_tasks.presets import OwnSplitTasksetConfig, preset, preset_seat

__all__ = ["OpenCodeDeepDiveEnv", "OpenCodeDeepDiveTaskset"]


@preset(
    task=OpenCodeTaskConfig(rubric=JudgeRubricConfig(answer_path="/app/answer.txt", max_answer_chars=8000)),
    dataset="zai-org/DeepDive",
    dataset_split="qa_rl",
    instruction_prompt_post="\n\nFind out with your tools what you do not know. Before you end, write your final "
    "answer, and nothing else, to `/app/answer.txt`.",
)
class OpenCodeDeepDiveTasksetConfig(OwnSplitTasksetConfig):
    """The questions of DeepDive, whose answers a judge compares with the reference."""


class OpenCodeDeepDiveTaskset(OpenCodeTaskset, vf.Taskset[OpenCodeTask, OpenCodeDeepDiveTasksetConfig]):  # type: ignore[type-var]
    """Questions with a short answer; every option of `OpenCodeTaskset` works here."""


@preset(agent=preset_seat(max_turns=32, seconds=3600, disabled_tools=("question", "task", "skill", "websearch")))
class OpenCodeDeepDiveEnvConfig(OpenCodeEnvConfig):
    """OpenCode on research, with 32 turns and an hour; what it searches with, `backends.file` names."""


class OpenCodeDeepDiveEnv(OpenCodeEnv, vf.Env[OpenCodeDeepDiveEnvConfig]):
    """Runs OpenCode on each question in a sandbox of its own, and has its answer judged."""
