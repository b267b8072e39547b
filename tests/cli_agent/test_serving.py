"""What an environment does to its process while it serves."""

import gc

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig


@pytest.mark.usefixtures("sandboxes")
async def test_a_full_collection_leaves_out_what_was_there_before_the_environment_served() -> None:
    env = OpenCodeEnv(OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}}))
    gc.unfreeze()  # what the whole suite has left out
    there = len(gc.get_objects())
    async with env.serving():
        assert gc.get_freeze_count() > there / 2
        assert len(gc.get_objects()) < there / 2
    assert gc.get_freeze_count() == 0
