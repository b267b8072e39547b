"""An environment on a known dataset: an existing one with other defaults.

Invariant: a preset changes defaults and nothing else. `--help` shows them, every option stays an option, and an option
that is given below a preset's table (`--env.taskset.task.setup-timeout 60`) leaves the table's other defaults as they
are.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent.seats import local_seat
from opencode_env.taskset import OpenCodeTasksetConfig
from pydantic import BaseModel, model_validator
from verifiers.v1.configs.agent import AgentConfig, TimeoutConfig
from verifiers.v1.env import Env
from verifiers.v1.utils.generic import merge_defaults

DISABLED_TOOLS = ("question", "task", "websearch")
"""Tools that no preset gives its model. `write` is never among them: OpenCode switches `edit` off with it."""
ConfigT = TypeVar("ConfigT", bound=BaseModel)


def preset(**defaults: Any) -> Callable[[type[ConfigT]], type[ConfigT]]:
    """Class decorator: give fields that a configuration class inherits these defaults, and keep all else of them."""

    def apply(config: type[ConfigT]) -> type[ConfigT]:
        for name, value in defaults.items():
            field = config.model_fields[name]
            field.default = value
            if isinstance(value, BaseModel):
                # `--help` shows a table's options with the defaults of its class.
                field.description = f"Here {', '.join(_settings(merge_defaults(value, {})))}."
        config.model_rebuild(force=True)
        return config

    return apply


def _settings(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield what a table sets, as `name = value`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name} = {value}"


class PresetTasksetConfig(OpenCodeTasksetConfig):
    """`OpenCodeTasksetConfig` whose tables may have defaults of their own."""

    @model_validator(mode="before")
    @classmethod
    def _keep_the_rest_of_a_table(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        tables = {
            name: merge_defaults(field.default, given[name])
            for name, field in cls.model_fields.items()
            if isinstance(field.default, BaseModel) and isinstance(given.get(name), dict)
        }
        return {**given, **tables}


class OwnSplitTasksetConfig(PresetTasksetConfig):
    """A preset whose split is its dataset's own: another dataset has other splits."""

    @model_validator(mode="before")
    @classmethod
    def _no_split_of_another_dataset(cls, given: Any) -> Any:
        return {"dataset_split": None, **given} if isinstance(given, dict) and given.get("dataset") else given


def preset_seat(max_turns: int, seconds: float, disabled_tools: tuple[str, ...] = DISABLED_TOOLS) -> AgentConfig:
    """The seat of a preset: OpenCode in the confined local sandbox with these limits and without these tools."""
    seat = local_seat(OpenCodeHarnessConfig(id="opencode-env", disabled_tools=list(disabled_tools)))
    return seat.model_copy(update={"max_turns": max_turns, "timeout": TimeoutConfig(rollout=seconds)})


@preset(agent=preset_seat(max_turns=100, seconds=3600))
class OpenCodeProblemEnvConfig(OpenCodeEnvConfig):
    """OpenCode on mathematics, science or programming problems, with 100 turns and an hour."""


class OpenCodeProblemEnv(OpenCodeEnv, Env[OpenCodeProblemEnvConfig]):
    """Runs OpenCode on each problem in a sandbox of its own and scores what it wrote there."""
