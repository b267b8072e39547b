"""One `run_rollout` in this process, with a scripted model."""

from collections.abc import Sequence
from typing import Any

from opencode_env.scripted_model import RecordedRequest, Reply, ScriptedModel
from opencode_openenv.model_calls import resolve_endpoint
from opencode_openenv.result import RolloutResult
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.spec import RolloutSpec

from tests.support.replies import bash
from tests.support.rollouts import policy_of

DONE = Reply(text="done")


async def play(
    engine: RolloutEngine, *commands: str | Reply, seen: list[RecordedRequest] | None = None, **arguments: Any
) -> RolloutResult:
    """Run a rollout whose agent runs these commands, one per turn, and ends; `seen` gets what the model was asked."""
    steps: Sequence[Reply] = [bash(command) if isinstance(command, str) else command for command in commands]
    async with ScriptedModel(policy_of([*steps, DONE])) as model:
        given = {"base_url": model.base_url, "model": "some-model", "instruction": "do it", **arguments}
        spec = RolloutSpec(**given)
        result = await engine.rollout(spec, resolve_endpoint(spec))
        if seen is not None:
            seen.extend(model.requests)
        return result
