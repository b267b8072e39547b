"""Every cleanup hook runs to its end, in order, whatever happens."""

import asyncio
import logging
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator

import pytest
import verifiers.v1 as vf
from opencode_rubrics import CleanupError, Rubric, RubricConfig, cleanup, run_cleanup
from verifiers.v1.utils import interrupt

from tests.rubrics.conftest import trace_of


class Owner:
    """Records what its hooks saw, in a list of its own or one that it shares."""

    def __init__(self, name: str = "a", log: list[str] | None = None) -> None:
        self.name = name
        self.log: list[str] = [] if log is None else log


class WithLast(Owner):
    """With a hook that must run whatever the others do."""

    @cleanup()
    async def last(self) -> None:
        self.log.append("last")


class Ordered(Owner):
    @cleanup()
    async def middle(self) -> None:
        self.log.append(f"{self.name}.middle")

    @cleanup(priority=-5)
    async def late(self) -> None:
        self.log.append(f"{self.name}.late")

    @cleanup(priority=10)
    def early_and_not_async(self) -> None:
        self.log.append(f"{self.name}.early")


class Failing(WithLast):
    @cleanup(priority=3)
    async def broken(self) -> None:
        raise ValueError("boom")

    @cleanup(priority=2)
    async def cancelled_inside(self) -> None:
        raise asyncio.CancelledError("inner")

    @cleanup(priority=1)
    async def wants_what_is_not_there(self, sandbox: object) -> None:
        raise AssertionError("unreachable")


class Slow(Owner):
    @cleanup(priority=1)
    async def slow(self) -> None:
        await asyncio.sleep(0.05)
        self.log.append("slow")

    @cleanup()
    async def after(self) -> None:
        await asyncio.sleep(0.05)
        self.log.append("after")


class Hanging(WithLast):
    @cleanup(priority=1, timeout=0.05)
    async def hangs(self) -> None:
        await asyncio.Event().wait()


class Asking(Owner):
    @cleanup()
    async def ask(self, trace: str, task: int) -> None:
        self.log.append(f"{trace} {task}")


async def test_hooks_run_by_priority_over_all_owners() -> None:
    log: list[str] = []
    assert await run_cleanup([Ordered("b", log), Ordered("a", log)], {}) == []
    assert log == ["b.early", "a.early", "b.middle", "a.middle", "b.late", "a.late"]


async def test_a_hook_gets_what_it_asks_for_by_name() -> None:
    owner = Asking()
    await run_cleanup([owner], {"task": 1, "trace": "t", "runtime": None})
    assert owner.log == ["t 1"]


async def test_hooks_that_fail_are_reported_and_keep_no_other_from_running(caplog: pytest.LogCaptureFixture) -> None:
    owner = Failing()
    with caplog.at_level(logging.ERROR, logger="verifiers.v1"):
        failures = await run_cleanup([owner], {})
    assert owner.log == ["last"]
    assert [str(failure) for failure in failures[:2]] == [
        'cleanup hook "Failing.broken" failed: ValueError: boom',
        'cleanup hook "Failing.cancelled_inside" failed: CancelledError: inner',
    ]
    assert "sandbox" in str(failures[2])
    assert isinstance(failures[0].__cause__, ValueError)
    assert caplog.text.count("cleanup hook") == 3


async def test_a_cancelled_caller_is_cancelled_after_the_last_hook() -> None:
    owner = Slow()
    task = asyncio.create_task(run_cleanup([owner], {}))
    for _ in range(3):
        await asyncio.sleep(0.01)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert owner.log == ["slow", "after"]


async def test_a_hook_that_hangs_is_ended_at_its_deadline() -> None:
    owner = Hanging()
    (failure,) = await run_cleanup([owner], {})
    assert "Hanging.hangs" in str(failure)
    assert "TimeoutError" in str(failure)
    assert owner.log == ["last"]


async def test_an_undecorated_override_is_no_hook() -> None:
    class Without(Ordered):
        async def middle(self) -> None:
            raise AssertionError("unreachable")

    owner = Without()
    assert await run_cleanup([owner], {}) == []
    assert owner.log == ["a.early", "a.late"]


def test_a_cleanup_error_travels_between_processes() -> None:
    assert str(pickle.loads(pickle.dumps(CleanupError("text")))) == "text"


class Exiting(WithLast):
    @cleanup(priority=5)
    def exits(self) -> None:
        sys.exit("enough")

    @cleanup(priority=4)
    async def exits_later(self) -> None:
        await asyncio.sleep(0)
        raise SystemExit(3)

    @cleanup(priority=2)
    async def closes(self) -> None:
        raise GeneratorExit


@pytest.fixture
def vf_eval_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The signal handlers that `vf-eval` installs."""
    monkeypatch.setattr(interrupt, "_cleaning_up", False)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    interrupt.install_interrupt()
    yield
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("vf_eval_signals")
async def test_a_hook_that_exits_skips_no_other_and_is_on_the_trace() -> None:
    trace = trace_of(vf.TaskData(prompt="?"))
    owner = Exiting()
    failures = await run_cleanup([owner], {"trace": trace})
    assert owner.log == ["last"]
    causes = [type(failure.__cause__) for failure in failures]
    assert causes == [SystemExit, SystemExit, GeneratorExit]
    assert trace.info["cleanup_failures"] == [str(failure) for failure in failures]
    assert trace.info["cleanup_failures"][0] == 'cleanup hook "Exiting.exits" failed: SystemExit: enough'


class Interrupted(WithLast):
    @cleanup(priority=1)
    def interrupted(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)  # the handler runs in here


@pytest.mark.usefixtures("vf_eval_signals")
def test_a_real_interrupt_while_a_hook_runs_ends_the_evaluation_after_the_other_hooks() -> None:
    owner = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_cleanup([owner], {}))
    assert owner.log == ["last"]


async def test_a_reward_that_exits_is_an_error_of_the_task() -> None:
    with pytest.raises(vf.TaskError, match=r"Leaving.leave called sys.exit\(4\)"):
        await Leaving(RubricConfig()).score(vf.TaskData(prompt="?"), trace_of(vf.TaskData(prompt="?")), None)


class Leaving(Rubric[RubricConfig]):
    @vf.reward
    async def leave(self) -> float:
        sys.exit(4)
