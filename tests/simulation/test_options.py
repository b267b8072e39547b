"""The options of worlds, users and backends can be given on the command line, where every value is text."""

import pytest
from opencode_env.tool_backends.options import BackendsConfig
from opencode_env.user_simulation import UserSimulationConfig
from opencode_simulation.taskset import SimulationTasksetConfig
from pydantic import BaseModel
from pydantic_config import ConfigFileError, cli

GIVEN: list[tuple[type[BaseModel], list[str], dict[str, object]]] = [
    (SimulationTasksetConfig, ["--first-seed", "7"], {"first_seed": 7}),
    (SimulationTasksetConfig, ["--first-seed", "-9223372036854775808"], {"first_seed": -(2**63)}),
    (SimulationTasksetConfig, ["--episodes", "3"], {"episodes": 3}),
    (SimulationTasksetConfig, ["--dataset", "rows.jsonl"], {"dataset": "rows.jsonl"}),
    (SimulationTasksetConfig, ["--prompt", "{observation}!"], {"prompt": "{observation}!"}),
    (SimulationTasksetConfig, ["--task.world", "issue-tracker"], {"task": {"world": "issue-tracker"}}),
    (SimulationTasksetConfig, ["--task.server", "shared"], {"task": {"server": "shared"}}),
    (SimulationTasksetConfig, ["--task.max-steps", "9"], {"task": {"max_steps": 9}}),
    (SimulationTasksetConfig, ["--task.call-timeout", "1.5"], {"task": {"call_timeout": 1.5}}),
    (
        SimulationTasksetConfig,
        ["--task.rubric.discount", "0.9"],
        {"task": {"rubric": {"type": "environment-return", "discount": 0.9}}},
    ),
    (UserSimulationConfig, ["--max-turns", "4"], {"max_turns": 4}),
    (BackendsConfig, ["--call-timeout", "5"], {"call_timeout": 5.0}),
    (BackendsConfig, ["--start-timeout", "5"], {"start_timeout": 5.0}),
]


@pytest.mark.parametrize(("options", "words", "same"), GIVEN)
def test_an_option_on_the_command_line_is_the_one_of_a_file(
    options: type[BaseModel], words: list[str], same: dict[str, object]
) -> None:
    assert cli(options, args=words) == options.model_validate(same)


@pytest.mark.parametrize("words", [["--first-seed", "seven"], ["--first-seed", "1.5"], ["--first-seed", str(2**63)]])
def test_a_seed_that_is_none_is_refused_on_the_command_line(words: list[str]) -> None:
    with pytest.raises(ConfigFileError, match="--first-seed\n  Input should be"):
        cli(SimulationTasksetConfig, args=words)


def test_seeds_that_no_row_can_have_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="leaves fewer than 5 seeds"):
        SimulationTasksetConfig(first_seed=2**63 - 3, episodes=5)
