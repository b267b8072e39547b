"""A rubric of another package, named by import path or entry point, with a configuration class of its own."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from opencode_rubrics.config import RubricConfig
from opencode_rubrics.registry import register_rubric

ENTRY_POINT_GROUP = "opencode_rubrics"
"""Packages announce rubric classes here: `my-rubric = "my_package.rubrics:MyRubric"`."""


class ThirdPartyConfig(RubricConfig):
    """Stands for another package's rubric."""

    type: Literal["third-party"] = "third-party"
    rubric: str = Field(min_length=1)
    """`module:Class`, or the name of an entry point in the group `opencode_rubrics`."""
    options: dict[str, JsonValue] = {}
    """The fields of the rubric's own configuration class; checked when this configuration is built."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.resolved()
        return self

    def resolved(self) -> RubricConfig:
        """The configuration of the rubric's own class.

        Raises:
            ValueError: There is no such rubric, or its class refuses the options.
        """
        rubric = _load(self.rubric)
        config_type = getattr(rubric, "config_type", lambda: None)()
        if config_type is None:
            raise ValueError(f'"{self.rubric}" is not a rubric class: derive it from Rubric[MyConfig]')
        config: RubricConfig = config_type.model_validate(self.options)
        register_rubric(rubric)  # its module need not do it
        return config


def _load(name: str) -> Any:
    if ":" not in name:
        found = entry_points(group=ENTRY_POINT_GROUP, name=name)
        if not found:
            known = sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))
            raise ValueError(
                f'no installed package announces the rubric "{name}" (known: {", ".join(known) or "none"}); '
                'write "module:Class" to name one by its import path'
            )
        return next(iter(found)).load()
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f'rubric "{name}" cannot be imported: {error}; write "module:Class"') from error
