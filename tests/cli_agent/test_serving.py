"""What an environment does to its process while it serves."""

import gc

from opencode_env.opencode.env import OpenCodeEnv, OpenCodeEnvConfig


async def test_a_full_collection_leaves_out_what_was_there_before_the_environment_served() -> None:
    env = OpenCodeEnv(OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}}))
    there = len(gc.get_objects())
    async with env.serving():
        assert gc.get_freeze_count() > there / 2
        assert len(gc.get_objects()) < there / 2
    assert gc.get_freeze_count() == 0
