"""The rubric: a named bundle of rewards and metrics with a life cycle; and the one boundary of all scoring.

Invariant: a wrong, missing or malformed answer is a reward of 0, a failure of the infrastructure is an exception. A
rubric prepares by the row and the configuration: whatever that raises is an error. Then it reads what the agent made:
whatever that raises is a reward of 0, unless a neutral answer of ours fails as well (`read_as_data`).

Cleanup hooks run after scoring, whatever happened before: each exactly once and to its end, also when another raises
anything, `SystemExit` included, and when the calling task is cancelled. A failure is told in the log and on the trace,
never raised. Only a user's interrupt goes on, once all have run.
"""

import asyncio
import inspect
import logging
import math
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Generic, cast

import verifiers.v1 as vf
from pydantic import TypeAdapter, ValidationError, field_serializer
from pydantic_config import BaseConfig
from rollout_sandbox.confined.config import Bind
from rollout_sandbox.errors import SandboxFileError, ScoringError
from rollout_sandbox.told import first_error, task_name
from rollout_sandbox.toolbox.checked_run import is_infrastructure
from rollout_sandbox.toolbox.files import upload_content
from rollout_sandbox.toolbox.scoring import attach, causes, exempt, not_exempt, not_the_agents, said, scoring_of
from rollout_sandbox.toolbox.workdir import in_workdir
from typing_extensions import TypeVar
from verifiers.v1.errors import boundary
from verifiers.v1.graph import MessageNode
from verifiers.v1.state import StateT
from verifiers.v1.task import ConfigT as TaskConfigT
from verifiers.v1.task import DataT
from verifiers.v1.types import AssistantMessage, UserMessage
from verifiers.v1.utils.aio import run_shielded
from verifiers.v1.utils.decorators import discover_decorated, invoke, mark, seed, unseed
from verifiers.v1.utils.generic import concrete_type

from opencode_rubrics.errors import CleanupError

logger = logging.getLogger("verifiers.v1.opencode_rubrics.rubric")

UNREADABLE_METRIC = "answer_unreadable"
"""The metric that is 1 where reading what the agent made has failed, and 0 in every other rollout that is scored."""
FAILURES_KEY = "unreadable"
"""Where `trace.info` lists these failures: `scorer`, `error` and `place` of each."""
CLEANUP_FAILURES_KEY = "cleanup_failures"
"""Where `trace.info` lists the cleanup hooks that failed, one text each."""
SCORERS_KEY = "scorers"
"""Where `trace.info` names the version of each scorer, by the `type` of its configuration."""

_SHOWN = 500
_PASSING = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)


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


ConfigT = TypeVar("ConfigT", bound=RubricConfig, default=RubricConfig)
FieldT = TypeVar("FieldT")
HookT = TypeVar("HookT", bound=Callable[..., object])

AnyTrace = vf.Trace[Any, Any, Any]
"""A trace of any task."""

Score = float | Mapping[str, float]
Scorer = Callable[..., Awaitable[Score]]


@dataclass(frozen=True)
class NeutralAnswer:
    """An answer of ours in place of the agent's, to tell whether that is to blame."""

    reply: str = "0"
    path: str | None = None
    """The file in the sandbox that holds it, too."""
    sandbox: bool = True
    """Whether reading it needs a sandbox, where there is one."""


def task_field(task: vf.TaskData, name: str, kind: type[FieldT], missing: str) -> FieldT:
    """Return what a field of a task's data holds, whatever the class of that data and of what it holds. A `TaskError`
    that begins with what is `missing` if it is not of this kind."""
    try:
        return TypeAdapter(kind).validate_python(getattr(task, name, None), from_attributes=True)
    except ValidationError as error:
        raise vf.TaskError(f"{missing}: {error}") from error


class Rubric(Generic[ConfigT]):
    """Base of all rubrics: methods marked `@vf.reward`, `@vf.metric` and `@cleanup` do the work.

    Each asks by parameter name for any of `task` (task data), `trace`, `runtime`, and of what `prepare` gives. One
    instance serves many rollouts at once, so a rubric keeps nothing of a rollout on itself.
    """

    version: ClassVar[str] = ""
    """Another one where equal rollouts may score otherwise; empty is that of the package."""

    def __init__(self, config: ConfigT | None = None) -> None:
        self.config = cast(ConfigT, self.config_type()()) if config is None else config

    @classmethod
    def config_type(cls) -> type[RubricConfig]:
        """The config class that this rubric is bound to (`Rubric[MyConfig]`); one without has no options."""
        return concrete_type(cls, RubricConfig) or RubricConfig

    @property
    def members(self) -> "Sequence[Rubric[Any]]":
        """Further live rubrics that score as part of this one and whose cleanup hooks run with it."""
        return ()

    async def shared_directories(self) -> Sequence[Bind]:
        """The host directories that the rubric wants to see in the confined local sandbox; asked before it starts."""
        return ()

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """Return what scoring needs of the row and the configuration, by the names by which rewards and metrics ask for
        it; `sandbox` is the runtime's type, None without one. Whatever it raises is an error of the rollout; whatever
        rewards and metrics raise is the agent's first."""
        return {}

    def neutral(self, task: vf.TaskData) -> NeutralAnswer:
        """An answer that this rubric can read: the row's own if that is a text, also in the file at `answer_path`."""
        answer = getattr(task, "answer", None)
        reply = answer if isinstance(answer, str) and answer.strip() else "0"
        scorers = [fn for kind in ("reward", "metric") for fn in discover_decorated(self, kind)]
        boxed = any("runtime" in inspect.signature(fn).parameters for fn in scorers)
        return NeutralAnswer(reply, getattr(self.config, "answer_path", None), boxed)

    def weight(self, name: str, scorer: Callable[..., Any]) -> float:
        """Return what the reward `name` of a scorer counts."""
        return float(getattr(scorer, "_vf_weight", 1.0))

    async def score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> None:
        """Prepare, then run all rewards, then all metrics, and record them on `trace` with their weights.

        A result that maps names to numbers is recorded under those names. Without a `runtime` whatever requires one is
        skipped. Rewards and metrics that raise are rewards of 0 (see `read_as_data`).

        Raises:
            TaskError: preparing failed; a `ScoringError` if a reward or metric raises on a neutral answer, too.
            RolloutError: preparing raised this more precise error, or the sandbox is gone.
        """
        name = type(self).__name__
        version = vars(type(self)).get("version") or _package_version(type(self).__module__.partition(".")[0])
        trace.info.setdefault(SCORERS_KEY, {})[self.config.type or name] = str(version)
        self._seed(trace, runtime)
        with not_the_agents():
            async with boundary(vf.TaskError, f"rubric {name} preparing"):
                prepared = await self.prepare(task, None if runtime is None else runtime.type)
                neutral = self.neutral(task)

        async def read(trace: AnyTrace, runtime: vf.Runtime | None) -> None:
            await self._scores(task, trace, runtime, prepared)

        await read_as_data(read, trace, runtime, neutral, type(self))

    def _seed(self, trace: AnyTrace, runtime: vf.Runtime | None) -> tuple[list[Scorer], list[Scorer]]:
        """The rewards and metrics that can run, whose names are put on the trace as not yet scored."""
        rewards, metrics = _runnable(self, "reward", runtime), _runnable(self, "metric", runtime)
        seed(trace.rewards, (fn.__name__ for fn in rewards))
        seed(trace.metrics, (fn.__name__ for fn in metrics))
        return rewards, metrics

    async def _scores(
        self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None, prepared: Mapping[str, object]
    ) -> None:
        available: dict[str | type, Any] = {"task": task, "trace": trace}
        available.update(prepared.items())
        if runtime is not None:
            available["runtime"] = runtime
        rewards, metrics = self._seed(trace, runtime)
        for fn, score in zip(rewards, await _run_together(rewards, available), strict=True):
            for name, value in _named(fn, score, trace.rewards).items():
                trace.record_reward(name, value, self.weight(name, fn))
        for fn, score in zip(metrics, await _run_together(metrics, available), strict=True):
            trace.record_metrics(_named(fn, score, trace.metrics))

    def longest(self, task: vf.TaskData) -> float:
        """Seconds that its programs in the sandbox may take for a task, by their own limits."""
        return 0.0

    async def teardown(self) -> None:
        """Free what the rubric holds for the whole environment; called once, when the environment stops."""


class RubricTask(vf.Task[DataT, StateT, TaskConfigT]):
    """A task that its `rubric` scores, before rewards and metrics of the task's own and those plugged in by config."""

    @property
    def rubric(self) -> Rubric[Any]:
        """The rubric: an attribute of the class will do, `live_rubric` where it holds what has to be torn down."""
        raise NotImplementedError(f"{type(self).__name__} has no `rubric`: set the one that scores its tasks")

    async def score(self, trace: AnyTrace, runtime: vf.Runtime | None = None, deployment: Any = None) -> None:
        """Record all rewards and metrics; none of a rollout whose setup ran out of time, which never had an agent."""
        if self.scoring_deferred or trace.stop_condition == "setup_timeout":
            return
        await self.rubric.score(self.data, trace, runtime)
        # By name: verifiers 0.4.0 has no deployment.
        await invoke(super().score, {"trace": trace, "runtime": runtime, "deployment": deployment})


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
        first = first_error(failures)
    else:
        return [task.result() for task in tasks]
    raise first


async def _run_one(scorer: Scorer, available: dict[str | type, Any]) -> Score:
    try:
        result: Score = await invoke(scorer, available)
    except SystemExit as error:  # asyncio would end the whole evaluation with it
        raise ScoringError(f"{scorer.__qualname__} called sys.exit({error.code!r})") from error
    return result


def _named(scorer: Any, score: Score, recorded: dict[str, Any]) -> Mapping[str, float]:
    if isinstance(score, Mapping):
        unseed(recorded, scorer.__name__)
        return score
    return {scorer.__name__: score}


Read = Callable[[AnyTrace, Any], Awaitable[object]]
"""Of a trace and a sandbox, or none."""


async def read_as_data(
    read: Read, trace: AnyTrace, runtime: vf.Runtime | None, neutral: NeutralAnswer, owner: type[Any]
) -> None:
    """Run `read`, which reads what the agent made and records rewards and metrics on the trace that it is given.

    What it raises is the agent's doing: its rewards are 0 and the metric `answer_unreadable` is 1, if a `neutral`
    answer can be read, for which it is run once more, in an untouched sandbox where one is needed. `owner` is the class
    whose code reads, for messages. Cancellation and the like pass through.

    Raises:
        ScoringError: the neutral answer fails as well, or cannot be asked; or this process ran out of memory.
        RolloutError: the infrastructure failed, by `is_infrastructure`, or what failed was none of the agent's.
    """
    before = {name for name, reward in trace.rewards.items() if reward is not None}
    told = {UNREADABLE_METRIC, *(name for name, value in trace.metrics.items() if value is not None)}
    async with boundary(vf.TaskError, f"rubric {owner.__name__} scoring"):
        try:
            with _raising_exceptions():
                await read(trace, runtime)
                _require_finite(trace)
        except Exception as error:
            if await is_infrastructure(error, runtime):
                # What an agent might bring about, though it is not its 0, is not tried again.
                if any(isinstance(one, MemoryError | BrokenExecutor) for one in causes(error)):
                    raise exempt(
                        ScoringError(f"this machine could not read what the agent made: {_said(error)}")
                    ) from error
                raise
            blank = await _control(read, trace, runtime, neutral, owner, error)
            rewards = {name: trace.rewards.pop(name) for name in [*trace.rewards] if name not in before} | blank.rewards
            for name, reward in rewards.items():
                if reward is not None:
                    trace.record_reward(name, 0.0, reward.weight)
            metrics = {name: trace.metrics.pop(name) for name in [*trace.metrics] if name not in told}
            known = {name: value for name, value in metrics.items() if value is not None}
            missing = blank.metrics.keys() - trace.metrics.keys()
            trace.record_metrics({**dict.fromkeys(missing, 0.0), **known})
    trace.record_metric(UNREADABLE_METRIC, trace.metrics.get(UNREADABLE_METRIC) or 0.0)


@contextmanager
def _raising_exceptions() -> Iterator[None]:
    """Have whatever the body raises be an `Exception`, also the panics of libraries in Rust, which would end the whole
    evaluation; but for what ends a task or this process."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        alone = error.split(_PASSING)[0] if isinstance(error, BaseExceptionGroup) else isinstance(error, _PASSING)
        if alone:
            raise
        raise RuntimeError(_said(error)).with_traceback(error.__traceback__) from error


def _require_finite(trace: AnyTrace) -> None:
    """Refuse, by a `ValueError`, a reward that would spoil the means of others."""
    for name, reward in trace.rewards.items():
        if reward is not None and not math.isfinite(reward.value):
            raise ValueError(f"reward {name!r} is {reward.value}: a reward must be a finite number")


def pay_nothing(trace: AnyTrace) -> None:
    """Take off a trace whatever it is rewarded with by others than who could not read what the agent made. What costs
    something stays: nobody is to gain by an answer that cannot be read."""
    for name, reward in trace.rewards.items():
        if reward is not None and reward.value > 0:
            trace.record_reward(name, 0.0, reward.weight)


async def _control(
    read: Read, trace: AnyTrace, runtime: vf.Runtime | None, neutral: NeutralAnswer, owner: type[Any], error: Exception
) -> AnyTrace:
    """The trace of the neutral answer, which can be read; the failure on the agent's is put on its own trace."""
    place = _place_of(error, owner)
    _tell_of_alike(error, place, trace, owner)
    scoring = scoring_of(trace)
    asked = MessageNode(message=UserMessage(content=trace.task.data.prompt_text), parent=None, sampled=False)
    answered = MessageNode(message=AssistantMessage(content=neutral.reply), parent=0, sampled=True)
    blank = type(trace)(task=trace.task, agent=trace.agent, state=type(trace.state)(), nodes=[asked, answered])
    attach(scoring, blank)
    try:
        async with scoring.control(), AsyncExitStack() as stack:
            box = None
            if runtime is not None and neutral.sandbox:
                box = await stack.enter_async_context(scoring.second_sandbox())
                if neutral.path is not None:
                    await upload_content(box, neutral.reply, in_workdir(blank, neutral.path))
            with _raising_exceptions():
                await read(blank, box)
    except Exception as again:  # noqa: BLE001 - told below, with what it was a control of
        not_exempt(again)
        told = said(error) if isinstance(error, vf.RolloutError) else f"rubric {owner.__name__} scoring: {_said(error)}"
        message = f"{told}; a neutral answer fails as well, or could not be tried: {_said(again)}"
        if isinstance(error, SandboxFileError):
            message += (
                "; a rubric that reads what an agent should have written catches SandboxFileError and returns 0.0"
            )
        raise exempt(ScoringError(message)) from error
    note_unreadable(trace, owner.__name__, _said(error), place)
    return blank


def note_unreadable(trace: AnyTrace, scorer: str, error: str, place: str = "") -> None:
    """Put on the trace, and count, that reading what the agent made failed, and not so a neutral answer."""
    trace.record_metric(UNREADABLE_METRIC, 1.0)
    trace.info.setdefault(FAILURES_KEY, []).append({"scorer": scorer, "error": error, "place": place})
    name = task_name(trace.task.data)
    logger.info("task %s: what the agent made cannot be read, so a reward of 0: %s %s", name, error, place)


def _said(error: BaseException) -> str:
    """The type and the message, for one line of a log or trace: what the agent made may speak in it."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in said(error)[:_SHOWN])
    return f"{type(error).__name__}: {text}"


def _place_of(error: BaseException, owner: type[Any]) -> str:
    """Return where the owner's own package raised it, or called what raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(sys.modules.get(owner.__module__), "__file__", None)
    own = [frame for frame in frames if file is not None and Path(frame.filename).is_relative_to(Path(file).parent)]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"


_alike: dict[tuple[str, str], set[str] | None] = {}
"""The tasks on which a scorer raised, by type and place of the error; None once that was told."""


def _tell_of_alike(error: Exception, place: str, trace: AnyTrace, owner: type[Any]) -> None:
    """Warn, once, of what is raised alike on several tasks: it may be a fault of the scorer's author."""
    kind = (type(error).__qualname__, f"{owner.__qualname__} {place}")
    tasks = _alike.setdefault(kind, set())
    if tasks is None:
        return
    tasks.add(str(trace.task.key))
    if len(tasks) > 1:
        _alike[kind] = None
        lines = [
            "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in line[-4 * _SHOWN :])
            for line in traceback.format_exception(error)
        ]
        logger.warning("%s raises alike on several tasks: mend it if it should not\n%s", kind[1], "".join(lines))


@cache
def _package_version(package: str) -> str:
    return next((f"{name} {metadata.version(name)}" for name in metadata.packages_distributions().get(package, ())), "")


def cleanup(priority: int = 0, *, timeout: float | None = 60.0) -> Callable[[HookT], HookT]:
    """Mark a method, plain or async, as a cleanup hook; hooks of a higher `priority` run first, and an async one is
    cancelled and reported as failed after `timeout` seconds. It asks by parameter name for any of `task` (task data),
    `trace` and `runtime`."""
    decorator: Callable[[HookT], HookT] = mark("cleanup", cleanup_priority=priority, cleanup_timeout=timeout)
    return decorator


async def run_cleanup(owners: Iterable[object], available: Mapping[str, object]) -> list[CleanupError]:
    """Run the cleanup hooks of `owners`, highest priority first, then in the order of `owners`, then by name; return
    the failures, which are logged and put on the trace in `available` as well. Cancellation, and a user's
    `KeyboardInterrupt` while a hook ran, are raised when every hook has run."""
    # `discover_decorated` sorts by name and the second sort is stable, so owners keep their order.
    hooks = [hook for owner in owners for hook in discover_decorated(owner, "cleanup")]
    hooks.sort(key=lambda hook: -getattr(hook, "cleanup_priority", 0))
    return await run_shielded(_run_hooks(hooks, dict(available.items())))


async def _run_hooks(hooks: list[Callable[..., object]], available: dict[str | type, Any]) -> list[CleanupError]:
    failures: list[CleanupError] = []
    interrupt: KeyboardInterrupt | None = None
    for hook in hooks:
        try:
            async with asyncio.timeout(getattr(hook, "cleanup_timeout", None)):
                result = invoke(hook, available)
                if inspect.isawaitable(result):
                    await result
        except KeyboardInterrupt as error:
            interrupt = error
        # Whatever it is: the remaining hooks still have something to free. CancelledError can only be the hook's own
        # here, or a closing event loop's.
        except BaseException as error:
            name = getattr(hook, "__qualname__", repr(hook))
            failure = CleanupError(f'cleanup hook "{name}" failed: {type(error).__name__}: {said(error)}')
            failure.__cause__ = error
            logger.error("%s", failure, exc_info=error)
            failures.append(failure)
            if isinstance(trace := available.get("trace"), vf.Trace):
                trace.info.setdefault(CLEANUP_FAILURES_KEY, []).append(str(failure))
    if interrupt is not None:
        raise interrupt
    return failures
