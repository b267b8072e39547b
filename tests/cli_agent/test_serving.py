"""What an environment does to its process while it serves."""

import gc

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig, ConfigT
from verifiers.v1.configs.env import EnvConfig
from verifiers.v1.env import Env
from verifiers.v1.utils.generic import concrete_type


@pytest.mark.usefixtures("sandboxes")
async def test_a_full_collection_leaves_out_what_was_there_before_the_environment_served() -> None:
    env = OpenCodeEnv(OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}}))
    gc.unfreeze()  # what the whole suite has left out
    there = len(gc.get_objects())
    async with env.serving():
        assert gc.get_freeze_count() > there / 2
        assert len(gc.get_objects()) < there / 2
    assert gc.get_freeze_count() == 0


def test_an_environment_whose_config_verifiers_would_not_find_is_refused() -> None:
    class OwnConfig(CliAgentEnvConfig):
        pass

    with pytest.raises(TypeError, match=r"config of Forgotten: add Env\[OwnConfig\] to its bases"):

        class Forgotten(CliAgentEnv[OwnConfig]):
            pass

    with pytest.raises(TypeError, match=r"config of Bare: add Env\[CliAgentEnvConfig\] to its bases"):

        class Bare(CliAgentEnv):
            pass

    class Between(CliAgentEnv[ConfigT]):
        """Its config is still a parameter."""

    class Named(CliAgentEnv[OwnConfig], Env[OwnConfig]):
        pass

    assert concrete_type(Named, EnvConfig, origin=Env) is OwnConfig
