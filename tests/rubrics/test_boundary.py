"""The one boundary of scoring: what is raised over what the agent made is its 0; all else is an error."""

import ast
import asyncio
import errno
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from copy import copy
from decimal import Decimal
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.classification import zero_spoilt
from opencode_env.cli_agent.guard import guarded, guarded_task
from opencode_rubrics import AnyTrace, Rubric, RubricConfig, RubricGroup, RubricGroupConfig, run_checked
from rollout_sandbox.compat import backend_of
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.toolbox.files import read_file
from rollout_sandbox.toolbox.scoring import Scoring, SecondSandboxOptions, attach, not_the_agents
from verifiers.v1.harnesses.bash import BashHarness, BashHarnessConfig

from tests.rubrics.conftest import CheckedData, trace_of

DATA = vf.TaskData(prompt="?")
NOTHING: dict[str, float] = {}


def parse_too_deep() -> object:
    return json.loads("[" * 100_000)


def boundless_decimal() -> object:
    return abs(Decimal("9" * 100 + "e999999") * Decimal("1e999999"))


def raises(error: BaseException) -> Callable[[], object]:
    def raise_it() -> object:
        raise copy(error)  # a control marks what it raises, and the next test raises this one

    return raise_it


class Panic(BaseException):
    """As libraries in Rust raise."""


class Speechless(Exception):
    """Can be neither shown nor compared."""

    def __str__(self) -> str:
        raise ValueError("no text")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no comparison")

    __hash__ = None  # type: ignore[assignment]


def several() -> object:
    try:
        return int("x")
    except ValueError as error:
        raise ExceptionGroup("of a reward's own tasks", [error]) from None


FAILURES: list[Callable[[], object]] = [
    boundless_decimal,
    parse_too_deep,
    lambda: json.loads("{"),
    lambda: b"\xff".decode(),
    lambda: "\ud800".encode(),
    lambda: NOTHING["key"],
    lambda: int("x"),
    lambda: int("1" * 5000),
    raises(vf.TaskError("no")),
    raises(ScoringError("no")),
    raises(vf.ProviderError("no")),
    raises(TimeoutError()),
    raises(OSError(errno.ENAMETOOLONG, "long")),
    several,
    lambda: ast.literal_eval("-" * 200_000 + "1"),
    lambda: bytes(1 << 60),
    raises(BrokenProcessPool("gone")),
    lambda: {1: 1}[1 << 100_000],
    raises(Speechless()),
    raises(Panic("of a library in Rust")),
    lambda: sys.exit(2),
]


class PickyRubric(Rubric[RubricConfig]):
    """Fails over one reply, in a reward or a metric, as somebody's rubric without any preparation."""

    on, failure = "bad", staticmethod(raises(ValueError("no")))
    in_metric = False

    @vf.reward(weight=0.5)
    async def picky(self, trace: AnyTrace) -> float:
        if trace.last_reply == self.on and not self.in_metric:
            self.failure()
        return 1.0

    @vf.reward
    async def named(self) -> dict[str, float]:
        return {"left": 1.0, "right": -1.0}

    @vf.metric
    async def counted(self, trace: AnyTrace) -> float:
        if trace.last_reply == self.on and self.in_metric:
            self.failure()
        return 7.0


def picky(failure: Callable[[], object], *, in_metric: bool = False) -> PickyRubric:
    rubric = PickyRubric(RubricConfig(type="picky"))
    rubric.failure, rubric.in_metric = failure, in_metric
    return rubric


async def scored(rubric: Rubric[Any], reply: str = "bad", runtime: Any = None, data: Any = DATA) -> AnyTrace:
    trace = trace_of(data, reply)
    await rubric.score(data, trace, runtime)
    return trace


@pytest.mark.parametrize("in_metric", [False, True])
@pytest.mark.parametrize("failure", FAILURES)
async def test_whatever_is_raised_over_one_reply_is_a_zero_of_all_rewards(
    failure: Callable[[], object], in_metric: bool
) -> None:
    trace = await scored(picky(failure, in_metric=in_metric))
    rewards = {name: (reward.score, reward.weight) for name, reward in trace.rewards.items() if reward}
    assert rewards == {"picky": (0.0, 0.5), "left": (0.0, 1.0), "right": (0.0, 1.0)}
    assert trace.metrics == {"counted": 0.0, "answer_unreadable": 1.0}
    (told,) = trace.info["unreadable"]
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - one of many
        failure()
    first = getattr(raised.value, "exceptions", [raised.value])[0]
    if isinstance(first, Exception):
        assert told["error"].startswith(type(first).__name__)
        assert told["place"].startswith("test_boundary.py:")
    fine = await scored(picky(failure, in_metric=in_metric), "good")
    assert (fine.reward, fine.metrics) == (0.5, {"counted": 7.0, "answer_unreadable": 0.0})


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_read_that_fails_on_a_neutral_answer_too_is_an_error_of_its_own_type(
    failure: Callable[[], object],
) -> None:
    rubric = picky(failure)
    rubric.on = "0"
    trace = trace_of(DATA, "0")
    with pytest.raises(ScoringError, match="a neutral answer fails as well") as raised:
        await rubric.score(DATA, trace, None)
    assert type(raised.value) is ScoringError
    assert trace.rewards["picky"] is None


async def test_the_rows_own_answer_is_the_neutral_one() -> None:
    rubric = picky(raises(ValueError("no")))
    rubric.on = "42"
    with pytest.raises(ScoringError):
        await scored(rubric, "42", data=CheckedData(prompt="?", answer="42"))
    assert (await scored(rubric, "42", data=CheckedData(prompt="?", answer="43"))).reward == 0.0


OURS = [
    *(OSError(number, "full") for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
    OSError(errno.EAGAIN, "no process"),
    RuntimeError("can't start new thread"),
    vf.SandboxError("no sandbox to ask"),
]


@pytest.mark.parametrize("error", OURS)
async def test_what_this_machine_has_run_out_of_is_an_error_and_no_zero(error: Exception) -> None:
    with pytest.raises(vf.RolloutError):
        await scored(picky(raises(error)))


@pytest.mark.parametrize("error", [MemoryError(), BrokenProcessPool("gone")])
async def test_a_machine_short_of_memory_is_an_error_that_is_not_tried_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout_sandbox.toolbox.scoring._short_of_memory", lambda: True)
    with pytest.raises(ScoringError, match="this machine could not read"):
        await scored(picky(raises(error)))


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt])
async def test_cancellation_and_interrupts_pass_through(kind: type[BaseException]) -> None:
    class Ends(PickyRubric):
        async def _scores(self, *arguments: Any) -> None:
            raise kind

    with pytest.raises(kind):
        await scored(Ends(RubricConfig(type="ends")))


@pytest.mark.parametrize("error", [ValueError("no"), ScoringError("no"), vf.TaskError("no")])
async def test_what_preparing_raises_is_an_error_as_it_is(error: Exception) -> None:
    class Prepared(PickyRubric):
        async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
            raise error

    trace = trace_of(DATA, "good")
    task = guarded_task(TaskOf(Prepared(RubricConfig(type="prepared"))))
    with pytest.raises(vf.TaskError, match="no") as raised:
        await task.score(trace)
    assert type(raised.value) is (type(error) if isinstance(error, vf.RolloutError) else vf.TaskError)
    assert trace.rewards == {"picky": None, "named": None}


async def test_what_is_prepared_is_given_by_name() -> None:
    class Prepared(Rubric[RubricConfig]):
        async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
            return {"reference": f"{task.prompt}{sandbox}"}

        @vf.reward
        async def given(self, reference: str) -> float:
            return float(reference == "?None")

    assert (await scored(Prepared(RubricConfig(type="prepared")))).reward == 1.0


async def test_controls_of_a_rubrics_own_are_none_of_the_agents() -> None:
    def control() -> None:
        with not_the_agents():
            int("the control")

    def wrapped() -> None:
        try:
            control()
        except ValueError as error:
            raise KeyError("wrapped") from error

    failures: list[Callable[[], object]] = [control, wrapped]
    for failure in failures:
        with pytest.raises(vf.TaskError):
            await scored(picky(failure))


class TaskOf(vf.Task[vf.TaskData]):
    """A task with a rubric, and a reward of its user's."""

    own: Callable[[AnyTrace], object] = staticmethod(lambda trace: 1.0)

    def __init__(self, rubric: Rubric[Any] | None = None, data: vf.TaskData = DATA) -> None:
        super().__init__(data)
        self.rubric = rubric

    async def score(self, trace: Any, runtime: Any = None) -> None:  # type: ignore[override, unused-ignore]
        if self.rubric is not None:
            await self.rubric.score(self.data, trace, runtime)
        await super().score(trace, runtime)

    @vf.reward
    async def users(self, trace: AnyTrace) -> float:
        return float(self.own(trace))  # type: ignore[arg-type]


async def test_a_reward_of_a_tasks_own_is_within_the_boundary() -> None:
    trace = trace_of(DATA, "bad")
    task = TaskOf(PickyRubric(RubricConfig(type="picky")))
    task.own = lambda trace: {"0": 1.0}[trace.last_reply]
    await guarded_task(task).score(trace)
    assert trace.reward == 0.0
    assert trace.metrics["answer_unreadable"] == 1.0
    assert [told["scorer"] for told in trace.info["unreadable"]] == ["PickyRubric", "TaskOf"]
    task.own = lambda trace: NOTHING[trace.last_reply]
    with pytest.raises(ScoringError, match="a neutral answer fails as well"):
        await guarded_task(task).score(trace_of(DATA, "good"))


# verifiers runs a task's rewards in tasks of the loop's, which a `SystemExit` ends.
@pytest.mark.parametrize("failure", FAILURES[:-1])
async def test_neither_a_reward_nor_the_finalizing_of_a_task_can_end_an_evaluation(
    failure: Callable[[], object],
) -> None:
    class Finalizing(TaskOf):
        async def finalize(self, trace: AnyTrace) -> None:  # type: ignore[override]
            if trace.last_reply == "unready":
                failure()

    task = Finalizing()
    task.own = lambda trace: failure() if trace.last_reply == "bad" else 1.0
    for reply in ("bad", "unready"):
        trace = trace_of(DATA, reply)
        guarding = guarded_task(task)
        await guarding.finalize(trace, None)  # type: ignore[arg-type]
        await guarding.score(trace)
        zero_spoilt(trace)
        assert (trace.reward, trace.metrics["answer_unreadable"]) == (0.0, 1.0)


async def test_a_reward_that_is_no_number_is_a_zero() -> None:
    for value in ("nan", "-inf"):
        task = TaskOf()
        task.own = lambda trace, value=value: float(value if trace.last_reply == "bad" else 1)  # type: ignore[misc]
        trace = trace_of(DATA, "bad")
        await guarded_task(task).score(trace)
        assert (trace.reward, trace.metrics["answer_unreadable"]) == (0.0, 1.0)


async def test_a_metric_of_a_harness_is_within_the_boundary() -> None:
    class Measured(BashHarness):
        @vf.metric
        async def length(self, trace: AnyTrace) -> float:
            return 1 / (trace.last_reply != "bad")

    harness = guarded(Measured(BashHarnessConfig(id="bash")), contained=True)
    trace = trace_of(DATA, "bad")
    await harness.score(trace, None)  # type: ignore[arg-type]
    trace.record_reward("solved", 1.0)
    zero_spoilt(trace)
    assert (trace.reward, trace.metrics["answer_unreadable"]) == (0.0, 1.0)


async def test_a_group_costs_the_member_that_cannot_read_and_says_so_under_one_name() -> None:
    group = RubricGroup(RubricGroupConfig.model_validate({"members": [{"rubric": {"type": "answer"}}]}))
    members = [picky(raises(ValueError("no"))), PickyRubric(RubricConfig(type="fine"))]
    members[1].on = "never"
    config = group.config.model_copy(update={"members": group.config.members * 2})

    class Two(RubricGroup):
        @property
        def members(self) -> Any:
            return members

    trace = await scored(Two(config))
    assert {name for name in trace.metrics if "unreadable" in name} == {"answer_unreadable"}
    assert trace.metrics["answer_unreadable"] == 1.0
    assert trace.reward == -1.0
    assert trace.info["scorers"].keys() == {"picky", "fine", "group"}


class SandboxedRubric(Rubric[RubricConfig]):
    """Runs a program of its own in the sandbox."""

    @vf.reward
    async def ran(self, runtime: vf.Runtime) -> float:
        await run_checked(runtime, ["sh", "-c", "test ! -e /app/broken"], "the check failed")
        return 1.0


def with_boxes(trace: AnyTrace, box: vf.Runtime) -> Scoring:
    """A rollout whose second sandbox is `box`."""

    @asynccontextmanager
    async def boxes(order: SecondSandboxOptions) -> AsyncIterator[vf.Runtime]:
        yield box

    scoring = Scoring(boxes)
    attach(scoring, trace)
    return scoring


@pytest.fixture
async def spare(sandboxes: None) -> AsyncIterator[vf.Runtime]:
    from rollout_sandbox.confined import LocalSandboxConfig, provision_confined

    async with provision_confined(LocalSandboxConfig()) as runtime:
        yield runtime


async def test_a_program_that_fails_in_a_living_sandbox_is_held_against_an_untouched_one(
    confined: vf.Runtime, spare: vf.Runtime
) -> None:
    rubric = SandboxedRubric(RubricConfig(type="sandboxed"))
    await confined.run(["touch", "/app/broken"], {})
    trace = trace_of(DATA, "x")
    with pytest.raises(ScoringError, match="gives scoring no sandbox of its own"):
        await rubric.score(DATA, trace, confined)
    with_boxes(trace, spare)
    await rubric.score(DATA, trace, confined)
    assert (trace.reward, trace.metrics["answer_unreadable"]) == (0.0, 1.0)
    await spare.run(["touch", "/app/broken"], {})
    with pytest.raises(ScoringError, match=r"the check failed.*a neutral answer fails as well"):
        await rubric.score(DATA, trace, confined)
    await backend_of(spare).stop()
    with pytest.raises(ScoringError):
        await rubric.score(DATA, trace, confined)


async def test_a_sandbox_that_is_gone_is_an_error(confined: vf.Runtime, spare: vf.Runtime) -> None:
    trace = trace_of(DATA, "x")
    with_boxes(trace, spare)
    await backend_of(confined).stop()
    with pytest.raises(vf.SandboxError):
        await SandboxedRubric(RubricConfig(type="sandboxed")).score(DATA, trace, confined)


async def test_the_neutral_answer_stands_in_the_answer_file(confined: vf.Runtime, spare: vf.Runtime) -> None:
    class FileConfig(RubricConfig):
        answer_path: str = "answer.json"

    class FileRubric(Rubric[FileConfig]):
        @vf.reward
        async def said(self, runtime: vf.Runtime) -> float:
            return float(json.loads(await read_file(runtime, "/app/answer.json"))["value"])

    data = CheckedData(prompt="?", answer='{"value": 1}')
    trace = trace_of(data)
    with_boxes(trace, spare)
    await confined.run(["sh", "-c", "echo '[' > /app/answer.json"], {})
    await FileRubric(FileConfig(type="file")).score(data, trace, confined)
    assert (trace.reward, trace.info["unreadable"][0]["error"][:15]) == (0.0, "JSONDecodeError")


async def test_a_control_has_the_time_of_a_scoring_and_uses_none_of_it() -> None:
    late = asyncio.Event()

    class Slow(PickyRubric):
        @vf.reward
        async def slow(self, trace: AnyTrace) -> float:
            if trace.last_reply == "bad":
                raise ValueError("no")
            await late.wait()
            return 1.0

    task = TaskOf(Slow(RubricConfig(type="slow")))
    with pytest.raises(ScoringError, match="it took longer than scoring may"):
        await guarded_task(task, 0.05).score(trace_of(DATA, "bad"))
    late.set()
    trace = trace_of(DATA, "bad")
    await guarded_task(task, 60.0).score(trace)
    zero_spoilt(trace)
    assert (trace.reward, len(trace.info["unreadable"])) == (0.0, 1)


async def test_a_fault_of_a_rubrics_author_is_shown_once_with_its_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opencode_rubrics.rubric._alike", {})
    rubric = picky(raises(ValueError("a \x1b[31mfault")))
    caplog.set_level(logging.WARNING, "verifiers")
    for key in ("one", "one", "two", "three", "four"):
        trace = trace_of(DATA, "bad")
        trace.task.key = key
        await rubric.score(DATA, trace, None)
        warned = [record for record in caplog.records if "raises alike" in record.getMessage()]
        assert len(warned) == (key not in ("one",))
    text = warned[0].getMessage()
    assert "PickyRubric" in text
    assert "in picky" in text
    assert "ValueError: a \ufffd[31mfault" in text


async def test_the_trace_names_the_version_of_each_scorer() -> None:
    class Versioned(PickyRubric):
        version = "2026.1"

    rubric = Versioned(RubricConfig(type="versioned"))
    assert (await scored(rubric, "good")).info["scorers"] == {"versioned": "2026.1"}
