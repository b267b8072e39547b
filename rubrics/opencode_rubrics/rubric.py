"""The rubric: a named bundle of rewards and metrics with a life cycle.

Invariant: a wrong, missing or malformed answer is a reward of 0, a failure of the infrastructure is an exception.
What escapes from a reward or metric is a `TaskError` unless it already names its boundary.
"""

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import verifiers.v1 as vf
from pydantic import TypeAdapter, ValidationError, field_serializer
from pydantic_config import BaseConfig
from typing_extensions import TypeVar
from verifiers.v1.errors import boundary
from verifiers.v1.utils.decorators import discover_decorated, invoke, seed, unseed
from verifiers.v1.utils.generic import concrete_type

logger = logging.getLogger("verifiers.v1.opencode_rubrics.rubric")


class RubricConfig(BaseConfig):
    """Base of all rubric configurations. A task carries this and nothing else of its rubric: tasks are copied and
    travel between processes, live rubrics do not (see `registry`)."""

    type: str = ""
    """Which rubric scores: one of those that ship, the name of another package's entry point, or `module:Class`. None
    here: the one that fits the row. An id stays as it was written, so that another process finds the same rubric."""

    @field_serializer("type")
    def _as_read(self, value: str) -> str:
        # A subclass that narrows `type` to a literal would warn about the id that somebody else gave its rubric.
        return value

    def resolved(self) -> "RubricConfig":
        """The configuration that the rubric itself gets: this one, unless it stands for another."""
        return self


ConfigT = TypeVar("ConfigT", bound=RubricConfig)
FieldT = TypeVar("FieldT")

AnyTrace = vf.Trace[Any, Any, Any]
"""A trace of any task."""

Score = float | Mapping[str, float]
Scorer = Callable[..., Awaitable[Score]]


@dataclass(frozen=True)
class SharedDirectory:
    """A host directory that a rubric wants to see in a sandbox, read-only, at the absolute path `target`."""

    source: Path
    target: str


def task_field(task: vf.TaskData, name: str, kind: type[FieldT], missing: str) -> FieldT:
    """What a field of a task's data holds, whatever the class of that data and of what it holds. A `TaskError` that
    begins with what is `missing` if it is not of this kind."""
    try:
        return TypeAdapter(kind).validate_python(getattr(task, name, None), from_attributes=True)
    except ValidationError as error:
        raise vf.TaskError(f"{missing}: {error}") from error


class Rubric(Generic[ConfigT]):
    """Base of all rubrics: methods marked `@vf.reward`, `@vf.metric` and `@cleanup` do the work.

    Each asks by parameter name for any of `task` (task data), `trace`, `runtime`, and of what `shared` adds. One
    instance serves many rollouts at once, so a rubric keeps nothing of a rollout on itself.
    """

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @classmethod
    def config_type(cls) -> type[RubricConfig] | None:
        """The config class this rubric is bound to (`Rubric[MyConfig]`); `None` if it is abstract."""
        found: type[RubricConfig] | None = concrete_type(cls, RubricConfig)
        return found

    @property
    def members(self) -> "Sequence[Rubric[Any]]":
        """Further live rubrics that score as part of this one and whose cleanup hooks run with it."""
        return ()

    async def shared_directories(self) -> Sequence[SharedDirectory]:
        """What the rubric wants to see in the confined local sandbox; asked before the sandbox starts."""
        return ()

    def shared(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> Mapping[str, object]:
        """What the rewards and metrics of one rollout share, by the name by which they ask for it."""
        return {}

    async def score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> None:
        """Run all rewards, then all metrics, and record them on `trace` with their weights.

        Rewards come first so that a metric may report on what a reward found. A result that maps names to
        numbers is recorded under those names. Without a `runtime` whatever requires one is skipped.

        Raises:
            TaskError: a reward or metric raised, or a reward is infinite or no number.
            RolloutError: a reward or metric raised this more precise error (sandbox, provider).
        """
        available: dict[str | type, Any] = {"task": task, "trace": trace}
        available.update(self.shared(task, trace, runtime).items())
        if runtime is not None:
            available["runtime"] = runtime
        rewards = _runnable(self, "reward", runtime)
        metrics = _runnable(self, "metric", runtime)
        seed(trace.rewards, (fn.__name__ for fn in rewards))
        seed(trace.metrics, (fn.__name__ for fn in metrics))
        async with boundary(vf.TaskError, f"rubric {type(self).__name__} scoring"):
            for fn, score in zip(rewards, await _run_together(rewards, available), strict=True):
                for name, value in _named(fn, score, trace.rewards).items():
                    if not math.isfinite(value):
                        raise ValueError(f"reward {name!r} is {value}: a reward must be a finite number")
                    trace.record_reward(name, value, getattr(fn, "_vf_weight", 1.0))
            for fn, score in zip(metrics, await _run_together(metrics, available), strict=True):
                trace.record_metrics(_named(fn, score, trace.metrics))

    def longest(self, task: vf.TaskData) -> float:
        """Seconds that its programs in the sandbox may take for a task, by their own limits."""
        return 0.0

    async def teardown(self) -> None:
        """Free what the rubric holds for the whole environment; called once, when the environment stops."""


def _runnable(rubric: object, kind: str, runtime: vf.Runtime | None) -> list[Any]:
    """The rubric's scorers of one kind that can run: all of them, or those that need no runtime."""
    scorers = discover_decorated(rubric, kind)
    runnable = [fn for fn in scorers if runtime is not None or not _requires_runtime(fn)]
    if skipped := [fn.__name__ for fn in scorers if fn not in runnable]:
        logger.info("score: no runtime, skipped %s", ", ".join(skipped))
    return runnable


def _requires_runtime(scorer: Scorer) -> bool:
    parameter = inspect.signature(scorer).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


async def _run_together(scorers: list[Scorer], available: dict[str | type, Any]) -> list[Score]:
    """Results of all scorers, run at the same time; the first failure ends the others and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run_one(scorer, available)) for scorer in scorers]
    except* Exception as failures:  # noqa: BLE001 - unwrapped and raised again below
        error: BaseException = failures
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        first = error
    else:
        return [task.result() for task in tasks]
    raise first


async def _run_one(scorer: Scorer, available: dict[str | type, Any]) -> Score:
    try:
        result: Score = await invoke(scorer, available)
    except SystemExit as error:  # asyncio would end the whole evaluation with it
        raise vf.TaskError(f"{scorer.__qualname__} called sys.exit({error.code!r})") from error
    return result


def _named(scorer: Any, score: Score, recorded: dict[str, Any]) -> Mapping[str, float]:
    if isinstance(score, Mapping):
        unseed(recorded, scorer.__name__)
        return score
    return {scorer.__name__: score}
