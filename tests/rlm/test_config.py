"""What the environment's configuration accepts, what it refuses, and what the user writes instead."""

import tomllib
from pathlib import Path

import pytest
from opencode_rlm.config import OpenCodeRLMEnvConfig
from pydantic import ValidationError
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.utils.loaders import environment_class, harness_class, resolve_env_config, taskset_class

CONFIGS = Path(__file__).parents[2] / "configs"
TASKSET = {"taskset": {"id": "opencode-rlm"}}


def test_the_package_is_one_plugin_with_environment_harness_and_taskset() -> None:
    assert environment_class("opencode-rlm", "").__name__ == "OpenCodeRLMEnv"
    assert environment_class("opencode-env", "opencode-rlm").__name__ == "OpenCodeRLMEnv"
    assert harness_class("opencode-rlm").__name__ == "OpenCodeRLMHarness"
    assert taskset_class("opencode-rlm").__name__ == "NeedleTaskset"


def test_the_defaults_need_no_tunnel_and_pin_the_harness() -> None:
    config = resolve_env_config(TASKSET)
    assert isinstance(config, OpenCodeRLMEnvConfig)
    assert (config.agent.runtime.type, config.sub.runtime.type) == ("subprocess", "subprocess")
    assert {name: harness.id for name, harness in config.agent_harnesses().items()} == {
        "agent": "opencode-rlm",
        "sub": "null",
        "user": "null",
    }
    assert config.user.runtime.type == "subprocess"
    settings = config.sub_settings
    assert (settings.max_parallel, settings.max_turns, settings.timeout, settings.max_depth) == (10, 10, 120.0, 1)
    assert not config.include_sub_llm_in_trajectory


def test_sub_model_is_short_for_the_seats_model_and_survives_the_way_to_a_worker() -> None:
    config = resolve_env_config({**TASKSET, "sub_model": "small"})
    assert isinstance(config, OpenCodeRLMEnvConfig)
    assert config.sub.model == "small"
    again = resolve_env_config(config.model_dump(mode="json"))
    assert isinstance(again, OpenCodeRLMEnvConfig)
    assert again.sub.model == "small"
    assert again.agent.harness == config.agent.harness


def test_two_different_sub_models_are_refused() -> None:
    with pytest.raises(ValidationError, match="give one of them"):
        resolve_env_config({**TASKSET, "sub_model": "small", "sub": {"model": "other"}})


def test_a_timeout_of_the_sub_seat_is_refused_in_favour_of_sub_timeout() -> None:
    with pytest.raises(ValidationError, match="use --env"):
        resolve_env_config({**TASKSET, "sub": {"timeout": {"rollout": 5}}})


def test_an_endpoint_of_the_sub_seat_needs_no_type() -> None:
    config = resolve_env_config({**TASKSET, "sub": {"client": {"base_url": "http://127.0.0.1:1/v1"}}})
    assert isinstance(config, OpenCodeRLMEnvConfig)
    assert isinstance(config.sub.client, EvalClientConfig)


@pytest.mark.parametrize(
    "fields",
    [{"max_sub_llm_parallelism": 0}, {"sub_llm_max_turns": 0}, {"sub_timeout": 0}, {"max_depth": -1}],
    ids=str,
)
def test_bounds_that_would_bound_everything_away_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        resolve_env_config({**TASKSET, **fields})


def test_the_shipped_configurations_are_valid() -> None:
    evaluation = tomllib.loads((CONFIGS / "eval" / "rlm.toml").read_text())
    config = resolve_env_config(evaluation["env"])
    assert isinstance(config, OpenCodeRLMEnvConfig)
    assert config.sub.model != evaluation["model"]
    training = tomllib.loads((CONFIGS / "rl" / "rlm.toml").read_text())
    (source,) = training["orchestrator"]["train"]["source"]
    config = resolve_env_config(source["env"])
    assert isinstance(config, OpenCodeRLMEnvConfig)
    assert config.include_sub_llm_in_trajectory
    assert (config.sub.model, config.sub.client, config.sub.sampling) == (None, None, None)
    assert config.agent.runtime.type == "prime"
