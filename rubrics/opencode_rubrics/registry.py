"""Finds any rubric by its id, and keeps the live rubrics of this process, one for each configuration.

Invariant: an id means the same rubric in every process. It is one of ours, or the name of an entry point that an
installed package announces, or an import path `module:Class`; nothing that a process happens to have imported counts.
Equal configurations share one rubric, which is torn down exactly once, when the last holder leaves `rubrics_in_use`.
"""

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, get_args, get_origin

from pydantic import BeforeValidator, SerializeAsAny
from verifiers.v1.utils.aio import run_shielded

from opencode_rubrics.rubric import Rubric, RubricConfig

logger = logging.getLogger("verifiers.v1.opencode_rubrics.registry")

ENTRY_POINT_GROUP = "opencode_rubrics"
"""Packages announce rubric classes here: `my-rubric = "my_package.rubrics:MyRubric"`."""

OWN_RUBRICS: Mapping[str, str] = {
    "verify-commands": "opencode_rubrics.verify_commands:VerifyCommandsRubric",
    "answer": "opencode_rubrics.answer:AnswerRubric",
    "hybrid-math": "opencode_rubrics.hybrid_math:HybridMathRubric",
    "remote-hybrid-math": "opencode_rubrics.remote_hybrid_math:RemoteHybridMathRubric",
    "judge": "opencode_rubrics.judge:JudgeRubric",
    "environment-return": "opencode_rubrics.environment_return:EnvironmentReturnRubric",
    "task-tests": "opencode_rubrics.task_tests:TaskTestsRubric",
    "code-tests": "opencode_rubrics.code_tests:CodeTestsRubric",
    "swe-tests": "opencode_rubrics.swe_tests:SweTestsRubric",
    "group": "opencode_rubrics.group:RubricGroup",
}
"""Import path by id; an entry point of the same name is never looked at."""

_THIRD_PARTY = "third-party"
_live: dict[tuple[type[RubricConfig], str], Rubric[Any]] = {}
_holders = 0


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
            f'there is no rubric "{name}": ours are {_listed(OWN_RUBRICS)}, and no installed package announces it in '
            f'the entry point group "{ENTRY_POINT_GROUP}" (announced: {_listed(announced.names)}); write '
            '"module:Class" to name one by its import path'
        )
    return paths[0]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def read_rubric_config(value: object) -> object:
    """The configuration that a mapping with a `type` describes, of the class that belongs to that rubric.

    `{type = "third-party", rubric = ID, options = {…}}` is another spelling of `{type = ID, …}`. Anything but a mapping
    is returned as it is, for pydantic to accept or to refuse.

    A `ValueError` if there is no such rubric, or its class refuses the options, or a finished configuration names no
    rubric, so that no other process could find it.
    """
    if not isinstance(value, Mapping):
        if isinstance(value, RubricConfig) and not value.type:
            raise ValueError(f'{type(value).__name__} says not which rubric it is for: give it type="module:Class"')
        return value
    if value.get("type") == _THIRD_PARTY:
        value = _spelled_out(value)
    ident = value.get("type")
    if not isinstance(ident, str) or not ident:
        raise ValueError(f"a rubric needs a `type`: {_listed(OWN_RUBRICS)}, or another package's")
    config_type = rubric_class(ident).config_type()
    assert config_type is not None
    options = {name: _parsed(config_type, name, option) for name, option in value.items() if name != "type"}
    return config_type.model_validate(options).model_copy(update={"type": ident})


def _spelled_out(value: Mapping[str, Any]) -> Mapping[str, Any]:
    options = value.get("options", {})
    if value.keys() - {"type", "rubric", "options"} or not isinstance(options, Mapping):
        raise ValueError(f'a rubric of the type "{_THIRD_PARTY}" has `rubric`, its id, and a table `options`')
    return {**options, "type": value.get("rubric")}


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


def live_rubric(config: RubricConfig) -> Rubric[Any]:
    """The live rubric of `config`, made on first use; a `LookupError` if its `type` names none of this configuration's
    class."""
    key = (type(config), config.model_dump_json())
    if key not in _live:
        _live[key] = _class_of(config)(config)
    return _live[key]


def _class_of(config: RubricConfig) -> type[Rubric[Any]]:
    problem: ValueError | str
    try:
        if (found := rubric_class(config.type)).config_type() is type(config):
            return found
        problem = f"{found.__name__} has another"
    except ValueError as error:
        problem = error
    raise LookupError(f'the type {config.type!r} names no rubric with a "{type(config).__name__}": {problem}')


@contextlib.asynccontextmanager
async def rubrics_in_use() -> AsyncIterator[None]:
    """Keep this process's rubrics alive; when the last holder leaves, tear all of them down. A teardown that fails is
    logged and keeps no other from running. Where nobody holds them, rubrics live as long as the process."""
    global _holders  # noqa: PLW0603 - the registry is the process's, by design
    _holders += 1
    try:
        yield
    finally:
        _holders -= 1
        if _holders == 0:
            await run_shielded(_teardown_all())


async def _teardown_all() -> None:
    while _live:
        _, rubric = _live.popitem()
        try:
            await rubric.teardown()
        except Exception:  # a rubric is the user's code, and the others are torn down too
            logger.exception('teardown of rubric "%s" failed', type(rubric).__name__)
