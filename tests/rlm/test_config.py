"""What the environment's configuration accepts, what it refuses, and what the user writes instead."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from opencode_rlm.env import OpenCodeRLMEnvConfig
from pydantic import ValidationError
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.utils.loaders import environment_class, harness_class, resolve_env_config, taskset_class

CONFIGS = Path(__file__).parents[2] / "configs"


def resolved(**fields: Any) -> OpenCodeRLMEnvConfig:
    """The configuration with these fields."""
    config = resolve_env_config({"taskset": {"id": "opencode-rlm"}, **fields})
    assert isinstance(config, OpenCodeRLMEnvConfig)
    return config


def test_the_package_is_one_plugin_with_environment_harness_and_taskset() -> None:
    for environment, taskset in (("opencode-rlm", ""), ("opencode-env", "opencode-rlm")):
        assert environment_class(environment, taskset).__name__ == "OpenCodeRLMEnv"
    assert harness_class("opencode-rlm").__name__ == "OpenCodeRLMHarness"
    assert taskset_class("opencode-rlm").__name__ == "NeedleTaskset"


def test_the_defaults_need_no_tunnel_and_pin_the_harness() -> None:
    config = resolved()
    assert [seat.runtime.type for seat in (config.agent, config.sub, config.user, config.summary)] == ["subprocess"] * 4
    harnesses = {name: harness.id for name, harness in config.agent_harnesses().items()}
    assert harnesses == {"agent": "opencode-rlm", "sub": "null", "user": "null", "summary": "null"}
    settings = config.sub_settings
    assert (settings.max_parallel, settings.max_turns, settings.timeout, settings.max_depth) == (10, 10, 120.0, 1)
    assert not config.include_sub_llm_in_trajectory


def test_sub_model_is_short_for_the_seats_model_and_survives_the_way_to_a_worker() -> None:
    config = resolved(sub_model="small")
    again = resolved(**config.model_dump(mode="json"))
    assert config.sub.model == again.sub.model == "small"
    assert again.agent.harness == config.agent.harness


def test_an_endpoint_of_the_sub_seat_needs_no_type() -> None:
    config = resolved(sub={"client": {"base_url": "http://127.0.0.1:1/v1"}})
    assert isinstance(config.sub.client, EvalClientConfig)


BOUND_AWAY = "greater than"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"sub_model": "small", "sub": {"model": "other"}}, "give one of them"),
        ({"sub": {"timeout": {"rollout": 5}}}, "use --env"),
        ({"max_sub_llm_parallelism": 0}, BOUND_AWAY),
        ({"sub_llm_max_turns": 0}, BOUND_AWAY),
        ({"sub_timeout": 0}, BOUND_AWAY),
        ({"max_depth": -1}, BOUND_AWAY),
    ],
)
def test_two_sub_models_a_timeout_of_the_sub_seat_and_bounds_that_bound_everything_away_are_refused(
    fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        resolved(**fields)


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
