"""Whether the models of a rollout are shown pictures."""

from collections.abc import Sequence

from verifiers.v1.clients import ModelContext

from opencode_env.cli_agent.interception import reads_images
from opencode_env.opencode.prompt import SegmentPrompt


async def shows_images(chosen: bool | None, models: Sequence[ModelContext], first: SegmentPrompt | None) -> bool:
    """Whether they are: what the option `images` says of models that can, or may.

    Args:
        chosen: the option; None = as a training client's renderer can, and else where the task begins with a picture.
        models: of the agent and of its sub calls.
        first: the task's prompt.
    """
    able = {await reads_images(ctx) for ctx in models}
    if False in able or chosen is not None:
        return bool(chosen) and False not in able
    return None not in able or bool(first and first.pictures)
