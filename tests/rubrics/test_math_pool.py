"""The worker pool: deadlines, crashes, cancellation, and no process that outlives its parent."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from opencode_rubrics import HybridMathConfig, HybridMathRubric, ScoringError
from opencode_rubrics.math import worker_pool
from opencode_rubrics.math.worker_pool import WorkerPool, release_pool, shared_pool
from rollout_sandbox.toolbox.scoring import Scoring

from tests.rubrics.math_support import HANG, pids_of, pool_of, score, wait_until_gone
from tests.support.machine import assert_no_longer, patience
from tests.support.programs import running
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.usefixtures("programs")

EASY = ("x^2-1", "(x-1)(x+1)")
Pools = dict[int, WorkerPool]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pools(programs: None) -> AsyncIterator[Pools]:
    """By their sizes, two pools that each test leaves able to work."""
    with pool_of(1) as one, pool_of(2) as two:
        yield {1: one, 2: two}


async def right(pool: WorkerPool) -> bool:
    return (await pool.verify(*EASY, "file", 10)).right


def cpu_of_importing_math_verify() -> float:
    """CPU seconds of a fresh interpreter that does nothing else: what starting a worker is measured by."""
    before = os.times()
    subprocess.run([sys.executable, "-c", "import math_verify"], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


async def test_the_pool_is_up_quickly_and_its_workers_import_no_verifiers() -> None:
    importing = cpu_of_importing_math_verify()
    with pool_of(1) as pool:
        started = time.process_time()
        assert await right(pool)
        own = time.process_time() - started
        importing = max(importing, cpu_of_importing_math_verify())
        assert own < 0.25 * importing
        for pid in pids_of(pool):
            assert b"verifiers" not in Path(f"/proc/{pid}/maps").read_bytes()
            ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            assert sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") < 2 * importing


async def test_a_hung_answer_delays_no_other(pools: Pools) -> None:
    hung = asyncio.create_task(pools[2].verify("5", HANG, "file", 1000))
    await asyncio.sleep(0.1)
    neighbours = await asyncio.gather(*(right(pools[2]) for _ in range(100)))
    assert all(neighbours)
    assert not hung.done()
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung


@pytest.mark.parametrize("size", [1, 2])
async def test_trivial_answers_do_not_wait_behind_bombs(pools: Pools, size: int) -> None:
    pool = pools[size]
    bombs = [asyncio.create_task(pool.verify("5", HANG, "file", 1000)) for _ in range(4)]
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(2):  # behind their first moments, and beside those that go on
            assert all(await asyncio.gather(*(right(pool) for _ in range(20))))
    assert not any(bomb.done() for bomb in bombs)
    assert len(pids_of(pool)) <= 1 + max(size, 2)
    for bomb in bombs:
        bomb.cancel()
    await asyncio.gather(*bombs, return_exceptions=True)
    assert await right(pool)


async def test_answers_that_take_long_compute_at_half_the_weight_of_all_others(pools: Pools) -> None:
    def at_weight(nice: int) -> list[int]:
        found = []
        for pid in pids_of(pool):
            with contextlib.suppress(ProcessLookupError):  # one that was just ended
                found += [pid] * (os.getpriority(os.PRIO_PROCESS, pid) == nice)
        return found

    usual, pool = os.getpriority(os.PRIO_PROCESS, 0), pools[2]
    hung = asyncio.create_task(pool.verify("5", HANG, "file", 1000))
    await until(lambda: bool(at_weight(usual + 3)))
    assert await right(pool)
    (worker,) = at_weight(usual + 3)
    if (session := Path(f"/proc/{worker}/autogroup")).exists():
        assert session.read_text().split("nice")[1].strip() == "3"
    hung.cancel()
    await asyncio.gather(hung, return_exceptions=True)
    integral = await pool.verify(r"\int_0^1 x^{5}e^{x}\,dx", "120-44e", "file", 1000)
    assert integral.right
    assert integral.seconds > worker_pool._MOMENT
    assert await right(pool)
    assert at_weight(usual) == pids_of(pool)


async def test_a_hung_answer_ends_at_its_deadline_and_waiting_for_a_place_is_told_apart(pools: Pools) -> None:
    results = await asyncio.gather(*(pools[2].verify("5", HANG, "file", 0.5) for _ in range(2)))
    assert [(result.right, result.reason) for result in results] == [(False, "timed_out")] * 2
    # Both get a place; one of them then waits for the only place of answers that take long.
    less, more = sorted(result.waited for result in results)
    assert more > less + 0.25
    assert await right(pools[2])


async def test_who_waits_behind_another_answer_keeps_the_time_of_its_scoring(pools: Pools) -> None:
    assert await right(pools[1])
    limit, scoring, worker = patience(0.3), Scoring(), pids_of(pools[1])[-1]
    os.kill(worker, signal.SIGSTOP)
    holding = asyncio.create_task(pools[1].verify(*EASY, "file", worker_pool._MOMENT))
    await asyncio.sleep(0)
    async with scoring.time(limit):
        waiting = asyncio.create_task(pools[1].verify(*EASY, "file", 5, scoring))
        await asyncio.sleep(1.5 * limit)
        os.kill(worker, signal.SIGCONT)
        result = await waiting
    assert result.right
    assert result.waited > limit
    assert (await holding).right


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
async def test_an_answer_that_breaks_its_worker_down_is_a_zero(pools: Pools, number: signal.Signals) -> None:
    assert await right(pools[1])
    task = asyncio.create_task(pools[1].verify("5", HANG, "file", 30))
    broken: set[int] = set()
    while not task.done():
        for pid in set(pids_of(pools[1])[1:]) - broken:
            broken.add(pid)
            os.kill(pid, number)
        await asyncio.sleep(0.02)
    assert ((await task).right, (await task).reason) == (False, "crashed")


async def test_a_hang_in_compiled_code_ends_too(pools: Pools) -> None:
    assert not (await pools[1].verify("5", "10^{10^{9}}", "file", 1)).right
    assert await right(pools[1])


async def test_a_killed_worker_or_parent_of_workers_is_replaced_and_its_answer_scored_again(pools: Pools) -> None:
    for which in (-1, 0):
        assert await right(pools[2])
        before = pids_of(pools[2])
        os.kill(before[which], signal.SIGKILL)
        assert wait_until_gone(before[which:]) == []
        assert all(await asyncio.gather(*(right(pools[2]) for _ in range(4))))


async def test_an_answer_on_which_workers_keep_dying_is_an_error_and_never_a_zero(pools: Pools) -> None:
    assert await right(pools[1])
    task = asyncio.create_task(pools[1].verify("5", HANG, "file", 30))
    killed: set[int] = set()
    while not task.done():
        for pid in pids_of(pools[1])[1:]:
            if pid not in killed:
                killed.add(pid)
                await asyncio.sleep(0.1)
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.02)
    with pytest.raises(ScoringError, match=r"ended 2 times on one answer \(exit code -9\).*max_workers"):
        await task
    assert await right(pools[1])


async def test_a_cancelled_scoring_ends_its_worker(pools: Pools) -> None:
    assert await right(pools[1])
    worker = pids_of(pools[1])[-1]
    task = asyncio.create_task(pools[1].verify("5", HANG, "file", 60))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wait_until_gone([worker]) == []
    assert await right(pools[1])


async def test_rubrics_share_one_pool_until_the_last_is_torn_down() -> None:
    first = HybridMathRubric(HybridMathConfig(max_workers=1))
    second = HybridMathRubric(HybridMathConfig(max_workers=1, timeout_seconds=4))
    assert (await score(first, None, "4", r"\boxed{4}")).reward == 1
    assert (await score(second, None, "4", r"\boxed{4}")).reward == 1
    pool = shared_pool(first, 1)
    assert pool is shared_pool(second, 1)
    pids = pids_of(pool)
    assert len(pids) == 2
    await first.teardown()
    assert (await score(second, None, "4", r"\boxed{5}")).reward == 0
    assert pids_of(pool) == pids
    await second.teardown()
    assert wait_until_gone(pids) == []


def test_workers_die_with_their_process_however_it_dies() -> None:
    ends = [signal.SIGKILL, signal.SIGTERM]
    with running(str(Path(__file__).with_name("orphan_parent.py")), *(hows := ("wait", "wait", "leave"))) as started:
        process, said = started
        for _ in hows:
            how, parent, *pids = said.readline().split()
            assert len(pids) == 3
            if how == "wait":
                os.kill(int(parent), ends.pop())
            assert wait_until_gone([int(pid) for pid in pids]) == []
        process.wait(30)
    assert ends == []


async def test_the_event_loop_stays_free_while_answers_are_scored(pools: Pools) -> None:
    assert await right(pools[2])
    pauses: list[float] = []
    scoring = asyncio.gather(*(right(pools[2]) for _ in range(150)))
    while not scoring.done():
        before = time.perf_counter()
        await asyncio.sleep(0)
        pauses.append(time.perf_counter() - before)
        await asyncio.sleep(0.001)
    assert all(await scoring)
    assert_no_longer(sorted(pauses)[len(pauses) // 2], 0.02)


async def test_closing_ends_all_workers_and_what_they_were_doing(pools: Pools) -> None:
    tasks = [asyncio.create_task(pools[2].verify("5", HANG, "file", 60)) for _ in range(2)]
    await until(lambda: len(pids_of(pools[2])) >= 3)
    pids = pids_of(pools[2])
    pools[2].close()
    assert wait_until_gone(pids) == []
    for task in tasks:
        with pytest.raises(ScoringError, match="stopped"):
            await task


async def test_no_more_workers_start_than_this_process_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    monkeypatch.delenv("MATHVERDICT_WORKERS", raising=False)
    for quota, expected in ("150000 100000", min(2, cores)), ("1000 100000", 1), ("max 100000", cores), (None, cores):
        monkeypatch.setattr(worker_pool, "_QUOTA", tmp_path / str(quota))
        if quota is not None:
            (tmp_path / quota).write_text(f"{quota}\n")
        assert worker_pool.usable_cores() == expected
    monkeypatch.setenv("MATHVERDICT_WORKERS", str(cores + 3))
    rubric = HybridMathRubric(HybridMathConfig())
    try:
        assert rubric._pool().size == cores + 3
    finally:
        release_pool(rubric)
    for wrong in ("0", "many", "-1", "1.5"):
        monkeypatch.setenv("MATHVERDICT_WORKERS", wrong)
        with pytest.raises(ValueError, match=f"MATHVERDICT_WORKERS is '{wrong}'"):
            worker_pool.usable_cores()
