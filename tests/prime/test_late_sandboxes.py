"""A sandbox that was deleted before anybody saw it run, and comes up nevertheless, is deleted again."""

import asyncio
import logging

import pytest
from rollout_sandbox.errors import SandboxGatewayError
from rollout_sandbox.prime import ownership
from rollout_sandbox.prime.runtime import PrimeSandboxBackend
from verifiers.v1.runtimes import PrimeConfig

from tests.prime.conftest import provision
from tests.support.prime_api import Fault, Plan, PrimeApi
from tests.support.waiting import cancelled, until

OFTEN, NEVER = (0.05,) * 2000, (3600.0,)


async def deleted_while_it_is_made(api: PrimeApi) -> None:
    """A creation is cancelled when the platform has promised the sandbox, which is deleted."""
    await cancelled(provision(), lambda: api.requests["statuses"])
    assert api.requests["delete"] == 1


def came(api: PrimeApi) -> bool:
    """Whether the one sandbox was up at any time."""
    return api.sandboxes[0].sessions is not None


async def test_it_is_looked_for_while_the_process_goes_on(api: PrimeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_LATE_PAUSES_S", OFTEN)
    api.plan(Plan(boot_s=2.5, outlives_deletion=True))
    await deleted_while_it_is_made(api)
    await until(lambda: came(api))
    await until(lambda: api.living == [])


async def test_one_whose_creation_was_not_answered_is_looked_for_too(
    api: PrimeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_LATE_PAUSES_S", OFTEN)
    monkeypatch.setattr(ownership, "_LOST_PAUSES_S", (0.0,))
    api.plan(Plan(boot_s=2.5, outlives_deletion=True))
    api.add(Fault("create", lost=True, times=3))
    with pytest.raises(SandboxGatewayError):
        await provision()
    assert api.requests["bulk_delete"] >= 1
    await until(lambda: came(api))
    await until(lambda: api.living == [])


async def test_the_end_of_the_process_looks_once_more(api: PrimeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_LATE_PAUSES_S", NEVER)
    api.plan(Plan(boot_s=2.5, outlives_deletion=True))
    await deleted_while_it_is_made(api)
    await until(lambda: came(api) and len(api.living) == 1)
    await asyncio.to_thread(ownership.look_again)
    assert api.living == []


async def test_nothing_is_said_to_live_on_when_nothing_came(
    api: PrimeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_LATE_PAUSES_S", NEVER)
    api.plan(Plan(never_ready=True))
    await deleted_while_it_is_made(api)
    with caplog.at_level(logging.WARNING):
        await asyncio.to_thread(ownership.look_again)
    assert "may live on" not in caplog.text
    assert ownership._MAY_LIVE == {}


async def test_what_was_deleted_is_deleted_once_however_often_it_is_torn_down(
    api: PrimeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_LATE_PAUSES_S", NEVER)
    api.plan(Plan(never_ready=True))
    runtime = PrimeSandboxBackend(PrimeConfig(), 60)
    await cancelled(runtime.start(), lambda: api.requests["statuses"])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            await runtime.teardown()
        await asyncio.to_thread(ownership.look_again)
    assert api.requests["delete"] == 1
    assert "may come yet" not in caplog.text
    assert "may live on" not in caplog.text
