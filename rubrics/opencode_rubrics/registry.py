"""The live rubrics of this process, one per configuration.

Invariant: equal configurations share one rubric, and a rubric is torn down exactly once. Environments that
manage rubrics hold the registry open (`rubrics_in_use`); the last one to leave tears everything down. Under
environments that do not, rubrics simply live as long as the process.
"""

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from verifiers.v1.utils.aio import run_shielded

from opencode_rubrics.any_rubric import rubric_class
from opencode_rubrics.rubric import Rubric, RubricConfig

logger = logging.getLogger("verifiers.v1.opencode_rubrics.registry")

_classes: dict[type[RubricConfig], type[Rubric[Any]]] = {}
_live: dict[tuple[type[RubricConfig], str], Rubric[Any]] = {}
_holders = 0


def register_rubric(rubric: type[Rubric[Any]]) -> type[Rubric[Any]]:
    """Class decorator: make `rubric` the one that its config class stands for. A `TypeError` if it names no config
    (`Rubric[MyConfig]`), or another class has that already."""
    config = rubric.config_type()
    if config is None:
        raise TypeError(f'rubric "{rubric.__name__}" names no config class; derive it from Rubric[MyConfig]')
    taken = _classes.setdefault(config, rubric)
    if taken is not rubric:
        raise TypeError(f'config "{config.__name__}" already belongs to rubric "{taken.__name__}"')
    return rubric


def live_rubric(config: RubricConfig) -> Rubric[Any]:
    """The live rubric of `config`, made on first use; a `LookupError` if none is registered for the config's class, or
    known by its `type`."""
    config = config.resolved()
    key = (type(config), config.model_dump_json())
    rubric = _live.get(key)
    if rubric is None:
        rubric = _live[key] = _class_of(config)(config)
    return rubric


def _class_of(config: RubricConfig) -> type[Rubric[Any]]:
    """The registered class, unless the configuration was read by another id than its class is registered under."""
    registered = _classes.get(type(config))
    if registered is not None and config.type == type(config).model_fields["type"].default:
        return registered
    try:
        found = rubric_class(config.type)
    except ValueError as error:
        raise LookupError(f'no rubric is registered for config "{type(config).__name__}": {error}') from error
    if found.config_type() is not type(config):
        raise LookupError(f'no rubric is registered for config "{type(config).__name__}" (type {config.type!r})')
    return found


@contextlib.asynccontextmanager
async def rubrics_in_use() -> AsyncIterator[None]:
    """Keep this process's rubrics alive; when the last holder leaves, tear all of them down. A teardown that fails is
    logged and keeps no other from running."""
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
