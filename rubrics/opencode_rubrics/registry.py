"""Finds any rubric by its id, keeps the live rubrics of this process, one for each configuration, and groups several.

Invariant: an id means the same rubric in every process: one of ours, an installed entry point, or an import path
`module:Class`. Equal configurations share one rubric, which is torn down when the last holder leaves `rubrics_in_use`.
"""

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, Self, get_args, get_origin

import verifiers.v1 as vf
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator
from pydantic_config import BaseConfig
from rollout_sandbox.confined.config import Bind
from rollout_sandbox.toolbox.scoring import not_the_agents
from verifiers.v1.utils.aio import run_shielded

from opencode_rubrics.rubric import UNREADABLE_METRIC, AnyTrace, Rubric, RubricConfig, pay_nothing

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
    "group": "opencode_rubrics.registry:RubricGroup",
}
"""Import path by id; an entry point of the same name is never looked at."""

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
    if not (isinstance(found, type) and issubclass(found, Rubric)) or getattr(found, "__parameters__", None):
        raise ValueError(f'"{ident}" is not a rubric class: derive it from Rubric, or from Rubric[MyConfig]')
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
    """The configuration that a mapping with a `type` describes, of the class that belongs to that rubric; anything else
    as it is. A `ValueError` if there is no such rubric, or its class refuses the options, or a finished configuration
    names no rubric and is lost elsewhere."""
    if not isinstance(value, Mapping):
        if isinstance(value, RubricConfig) and not value.type:
            raise ValueError(f'{type(value).__name__} says not which rubric it is for: give it type="module:Class"')
        return value
    ident = value.get("type")
    if not isinstance(ident, str) or not ident:
        raise ValueError(f"a rubric needs a `type`: {_listed(OWN_RUBRICS)}, or another package's")
    config_type = rubric_class(ident).config_type()
    options = {name: _parsed(config_type, name, option) for name, option in value.items() if name != "type"}
    return config_type.model_validate(options).model_copy(update={"type": ident})


def _parsed(config_type: type[RubricConfig], name: str, option: object) -> object:
    """The option, which is typed only here: a list or a table of the command line is read from JSON if it is some."""
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
    """The live rubric of `config`, made on first use; a `LookupError` if its `type` is another configuration's."""
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


class RubricMember(BaseConfig):
    """One rubric of a group."""

    rubric: AnyRubricConfig
    """Any rubric but a group."""
    weight: float = Field(1.0, allow_inf_nan=False)
    """Multiplies the weights of the rubric's own rewards."""


class RubricGroupConfig(RubricConfig):
    """Options of `RubricGroup`."""

    type: Literal["group"] = "group"
    members: list[RubricMember]
    """The rubrics, in the order in which they score."""

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        if not self.members:
            raise ValueError("a group needs at least one member: [[...rubric.members]] with a rubric of its own")
        if any(isinstance(member.rubric, RubricGroupConfig) for member in self.members):
            raise ValueError("a group cannot be a member of a group: list its members here, with their weights")
        return self


class RubricGroup(Rubric[RubricGroupConfig]):
    """Scores with one member after another; where two record the same name, the later one's ends in `_2`, `_3`, ….

    Not at once, because a member may end processes in the sandbox that another one is running.
    """

    version = "1"

    @property
    def members(self) -> Sequence[Rubric[Any]]:
        """The live rubrics of the group, whose cleanup hooks run as well."""
        return [live_rubric(member.rubric) for member in self.config.members]

    async def shared_directories(self) -> Sequence[Bind]:
        """Return what any member wants to see in the confined local sandbox."""
        found = [directory for rubric in self.members for directory in await rubric.shared_directories()]
        return list(dict.fromkeys(found))

    async def score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> None:
        """Record the rewards, with weights multiplied, and the metrics of every member; what keeps one from scoring is
        raised, and later members then do not score. If one cannot read what the agent made, none pays."""
        unreadable = 0.0
        with not_the_agents():
            rubrics = self.members
        for member, rubric in zip(self.config.members, rubrics, strict=True):
            rewards, metrics = trace.rewards, trace.metrics
            trace.rewards, trace.metrics = {}, {}
            try:
                await rubric.score(task, trace, runtime)
            finally:
                found, measured = trace.rewards, trace.metrics
                trace.rewards, trace.metrics = rewards, metrics
                for name, reward in found.items():
                    if reward is not None:
                        reward.weight *= member.weight
                    rewards[_free(name, rewards)] = reward
                unreadable = max(unreadable, measured.pop(UNREADABLE_METRIC, None) or 0.0)
                for name, value in measured.items():
                    metrics[_free(name, metrics)] = value
        await super().score(task, trace, runtime)
        trace.record_metric(UNREADABLE_METRIC, max(unreadable, trace.metrics[UNREADABLE_METRIC] or 0.0))
        if trace.metrics[UNREADABLE_METRIC]:
            pay_nothing(trace)


def _free(name: str, taken: dict[str, Any]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
