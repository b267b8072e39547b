"""Any rubric by its id, and the one type of a field that takes any rubric's configuration.

Invariant: an id means the same rubric in every process. It is one of ours, or the name of an entry point that an
installed package announces, or an import path `module:Class`; nothing that a process happens to have imported counts.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BeforeValidator, Field, JsonValue, SerializeAsAny, model_validator

from opencode_rubrics.rubric import Rubric, RubricConfig

ENTRY_POINT_GROUP = "opencode_rubrics"
"""Packages announce rubric classes here: `my-rubric = "my_package.rubrics:MyRubric"`."""

OWN_RUBRICS: Mapping[str, str] = {
    "verify-commands": "opencode_rubrics.verify_commands:VerifyCommandsRubric",
    "answer": "opencode_rubrics.answer:AnswerRubric",
    "hybrid-math": "opencode_rubrics.hybrid_math:HybridMathRubric",
    "remote-hybrid-math": "opencode_rubrics.remote_hybrid_math:RemoteHybridMathRubric",
    "judge": "opencode_rubrics.judge_rubric:JudgeRubric",
    "environment-return": "opencode_rubrics.environment_return:EnvironmentReturnRubric",
    "task-tests": "opencode_rubrics.task_tests:TaskTestsRubric",
    "code-tests": "opencode_rubrics.code_tests:CodeTestsRubric",
    "swe-tests": "opencode_rubrics.swe_tests:SweTestsRubric",
    "group": "opencode_rubrics.group:RubricGroup",
}
"""Import path by id; an entry point of the same name is never looked at."""

_THIRD_PARTY: Literal["third-party"] = "third-party"


@cache
def rubric_class(ident: str) -> type[Rubric[Any]]:
    """The class of the rubric with this id; a `ValueError` that names those that there are if there is none."""
    path = OWN_RUBRICS.get(ident) or (ident if ":" in ident else _announced(ident))
    module, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise ValueError(f'rubric "{ident}" cannot be imported: {error}; write "module:Class"') from error
    if not (isinstance(found, type) and issubclass(found, Rubric) and found.config_type()):
        raise ValueError(f'"{ident}" is not a rubric class: derive it from Rubric[MyConfig]')
    return found


def _announced(name: str) -> str:
    """The import path behind an entry point."""
    announced = entry_points(group=ENTRY_POINT_GROUP)
    paths = sorted({f"{point.module}:{point.attr}" for point in announced.select(name=name)})
    if len(paths) > 1:
        raise ValueError(f'several packages announce the rubric "{name}": write {" or ".join(paths)} instead')
    if not paths:
        raise ValueError(
            f'there is no rubric "{name}": ours are {_listed([*OWN_RUBRICS, _THIRD_PARTY])}, and no installed package '
            f'announces it in the entry point group "{ENTRY_POINT_GROUP}" (announced: {_listed(announced.names)}); '
            'write "module:Class" to name one by its import path'
        )
    return paths[0]


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"


def read_rubric_config(value: object) -> object:
    """The configuration that a mapping with a `type` describes, of the class that belongs to that rubric; anything else
    is returned as it is, for pydantic to accept or to refuse. A `ValueError` if there is no such rubric, or its class
    refuses the options, or a finished configuration names no rubric, so that no other process could find it."""
    if not isinstance(value, Mapping):
        if isinstance(value, RubricConfig) and not value.type:
            raise ValueError(f'{type(value).__name__} says not which rubric it is for: give it type="module:Class"')
        return value
    ident = value.get("type")
    if not isinstance(ident, str) or not ident:
        raise ValueError(f"a rubric needs a `type`: {_listed([*OWN_RUBRICS, _THIRD_PARTY])}, or another package's")
    config_type = ThirdPartyConfig if ident == _THIRD_PARTY else rubric_class(ident).config_type()
    assert config_type is not None
    options = {name: _parsed(config_type, name, option) for name, option in value.items() if name != "type"}
    return config_type.model_validate(options).model_copy(update={"type": ident})


def _parsed(config_type: type[RubricConfig], name: str, option: object) -> object:
    """The option; a list or a table of the command line, which is typed only here, arrives as JSON."""
    field = config_type.model_fields.get(name)
    if field is None or not isinstance(option, str) or not option.startswith(("[", "{")):
        return option
    if not any(get_origin(kind) in (list, dict) for kind in (field.annotation, *get_args(field.annotation))):
        return option
    try:
        return json.loads(option)
    except ValueError:
        return option


AnyRubricConfig = Annotated[SerializeAsAny[RubricConfig], BeforeValidator(read_rubric_config)]
"""Any rubric's configuration: ours, or another package's by its id."""


class ThirdPartyConfig(RubricConfig):
    """Stands for another package's rubric whose options are kept apart from its name."""

    type: Literal["third-party"] = _THIRD_PARTY
    rubric: str = Field(min_length=1)
    """The rubric's id: `module:Class`, or the name of an entry point in the group `opencode_rubrics`."""
    options: dict[str, JsonValue] = {}
    """The fields of the rubric's own configuration class; checked when this configuration is built."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.resolved()
        return self

    def resolved(self) -> RubricConfig:
        """The configuration of the rubric's own class; a `ValueError` if there is none, or it refuses the options."""
        config = read_rubric_config({**self.options, "type": self.rubric})
        assert isinstance(config, RubricConfig)
        return config.resolved()
