"""A sandbox that nobody asks anything of is ended by the platform; one of a rollout that goes on never is idle."""

import asyncio
import time

import pytest
from rollout_sandbox.errors import SandboxEndedError
from rollout_sandbox.prime import provision_prime
from verifiers.v1.runtimes import PrimeConfig

from tests.support.prime_api import PrimeApi
from tests.support.waiting import until

IDLE = PrimeConfig(idle_timeout=60)
"""A minute."""


async def test_a_command_that_is_silent_for_longer_than_the_idle_time_goes_on(
    monkeypatch: pytest.MonkeyPatch, api: PrimeApi
) -> None:
    minute = 5.0
    monkeypatch.setattr("rollout_sandbox.prime.runtime._MINUTE_S", minute)
    async with PrimeApi(minute_s=minute) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with provision_prime(IDLE, 60) as box:
            started = time.monotonic()
            command = asyncio.ensure_future(box.run(["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done"], {}))
            await until(lambda: command.done() or time.monotonic() - started > 2 * minute)
            assert [sandbox.status for sandbox in server.sandboxes] == ["RUNNING"]
            await box.write("/tmp/go", b"")
            assert (await command).exit_code == 0


async def test_what_a_process_left_that_keeps_nothing_alive_ends_itself_and_says_why(
    monkeypatch: pytest.MonkeyPatch, api: PrimeApi
) -> None:
    monkeypatch.setattr("rollout_sandbox.prime.runtime._MINUTE_S", 3600.0)
    async with PrimeApi(minute_s=0.5) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with provision_prime(PrimeConfig(idle_timeout=600), 60) as box:
            await until(lambda: server.living == [])
            with pytest.raises(SandboxEndedError, match="IDLE_TIMEOUT"):
                await box.run(["true"], {})
