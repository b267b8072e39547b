"""What one process asks of Prime at once is bounded, and what a rollout waits for is counted and said."""

import asyncio
import logging
import time
from pathlib import Path

import pytest
from prime_sandboxes.core import client as sdk
from rollout_sandbox.errors import SandboxGatewayError
from rollout_sandbox.prime import PrimeLimits, PrimeQueue, provision_prime
from rollout_sandbox.prime import queue as queue_module
from rollout_sandbox.prime import runtime as runtime_module
from rollout_sandbox.prime.queue import StartRecord
from verifiers.v1.runtimes import PrimeConfig, SubprocessConfig, limiters

from tests.support.prime_api import Fault, Plan, PrimeApi
from tests.support.waiting import PATIENCE_SECONDS, until


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits 10 and 30 s after a refusal, and we 5 to 60 s."""
    monkeypatch.setattr(sdk._PLATFORM_RETRY_WAIT, "_rate_limit_delays", (0.2, 0.2))
    monkeypatch.setattr(runtime_module, "_CREATION_PAUSES_S", (0.2, 0.2))


async def rollout(turns: PrimeQueue, config: PrimeConfig, until_done: asyncio.Event | None = None) -> StartRecord:
    """Have a sandbox when it is time, keep it for as long as is asked, and give it back."""
    async with turns.place(config) as record, provision_prime(config, 60, record=record):
        if until_done is not None:
            await until_done.wait()
    return record


async def test_no_more_sandboxes_live_at_once_than_there_are_places(
    api: PrimeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "_WORTH_SAYING_S", 0.01)
    room, done = PrimeQueue(PrimeLimits(max_sandboxes=2)), asyncio.Event()
    with caplog.at_level(logging.INFO):
        rollouts = [asyncio.ensure_future(rollout(room, PrimeConfig(), done)) for _ in range(3)]
        await until(lambda: api.requests["Start"] >= 4)
        assert len(api.sandboxes) == 2
        done.set()
        records = await asyncio.gather(*rollouts)
    assert len(api.sandboxes) == 3
    assert sorted(record.waited["place"] > 0.01 for record in records) == [False, False, True]
    assert "for a place (--env.prime.max_sandboxes)" in caplog.text


async def test_a_place_is_given_back_when_the_sandbox_could_not_be_had(api: PrimeApi) -> None:
    room = PrimeQueue(PrimeLimits(max_sandboxes=1))
    api.add(Fault("create", status=500))
    with pytest.raises(SandboxGatewayError):
        await rollout(room, PrimeConfig())
    await rollout(room, PrimeConfig())


async def test_a_creation_rate_is_kept_by_second_sandboxes_too_and_the_wait_is_counted(
    api: PrimeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limiters, "LIMITER_DIR", tmp_path / "rates of this test only")
    config = PrimeConfig(creates_per_min=12)
    some = 2.0  # seconds of the five between two
    async with PrimeQueue(PrimeLimits()).place(config) as record:
        started = time.monotonic()
        async with provision_prime(config, 60, record=record), provision_prime(config, 60, record=record):
            assert time.monotonic() - started > some
    assert record.waited["rate"] < some
    assert (await rollout(PrimeQueue(PrimeLimits()), config)).waited["rate"] > some


async def test_a_creation_that_is_refused_for_now_is_asked_for_again_and_the_wait_is_counted(
    api: PrimeApi, short_pauses: None, caplog: pytest.LogCaptureFixture
) -> None:
    api.add(Fault("create", status=429, times=4))
    api.plan(Plan(boot_s=0.1))
    record = await rollout(PrimeQueue(PrimeLimits()), PrimeConfig())
    assert (api.requests["create"], len(api.sandboxes)) == (5, 1)
    assert 0.7 < record.waited["refused"] < PATIENCE_SECONDS
    assert set(record.seconds) == {"create", "ready"}
    assert record.seconds["create"] < record.waited["refused"]
    assert "refuses to create a sandbox for now (429)" in caplog.text


async def test_patience_with_refusals_ends(api: PrimeApi, short_pauses: None) -> None:
    api.add(Fault("create", status=429, times=100))
    with pytest.raises(SandboxGatewayError, match="429"):
        await rollout(PrimeQueue(PrimeLimits(creation_patience=0.5)), PrimeConfig())
    assert 3 <= api.requests["create"] <= 9
    assert api.sandboxes == []


async def test_a_refusal_after_an_answer_that_was_lost_is_none(api: PrimeApi, short_pauses: None) -> None:
    api.add(Fault("create", lost=True), Fault("create", status=429, times=100))
    with pytest.raises(SandboxGatewayError, match="429"):
        await rollout(PrimeQueue(PrimeLimits(creation_patience=0.0)), PrimeConfig())
    assert (len(api.sandboxes), api.living) == (1, [])


async def test_what_is_asked_for_again_after_refusals_is_the_same_sandbox(api: PrimeApi, short_pauses: None) -> None:
    api.add(Fault("create", lost=True), Fault("create", status=429, times=2))
    await rollout(PrimeQueue(PrimeLimits()), PrimeConfig())
    assert (len(api.sandboxes), api.living) == (1, [])


async def test_connections_are_bounded(api: PrimeApi) -> None:
    api.add(Fault("create", delay=0.3, times=100), Fault("upload", delay=0.3, times=100))
    room = PrimeQueue(PrimeLimits(max_connections=2))

    async def use() -> None:
        async with room.place(PrimeConfig()) as record, provision_prime(PrimeConfig(), 60, record=record) as box:
            await asyncio.gather(*(box.write(f"/tmp/{number}", b"data") for number in range(4)))

    started = time.monotonic()
    await asyncio.gather(*(use() for _ in range(6)))
    assert time.monotonic() - started > 0.3 * (6 / 2) + 0.3 * (6 * 4 / 2) - 0.3


async def test_other_seats_wait_for_nothing() -> None:
    room = PrimeQueue(PrimeLimits(max_sandboxes=1))
    async with room.place(SubprocessConfig()) as first, room.place(SubprocessConfig()) as second:
        assert {**first.waited, **second.waited} == dict.fromkeys(("place", "rate", "refused"), 0.0)
