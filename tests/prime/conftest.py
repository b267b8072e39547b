"""The local server that speaks Prime's API, and the SDK of this process led to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rollout_sandbox.prime import ownership, provision_prime
from verifiers.v1.runtimes import PrimeConfig

from tests.support.prime_api import PrimeApi


async def provision(lifetime: int = 60) -> None:
    """Have a sandbox, and give it back."""
    async with provision_prime(PrimeConfig(labels=["mine"]), lifetime):
        pass


@pytest.fixture
async def api(sandboxes: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[PrimeApi]:
    """A server with nothing in it; nothing may be left in it. What other tests asked for is not there."""
    monkeypatch.setattr(ownership, "_MAY_LIVE", {})
    async with PrimeApi(minute_s=3600.0) as started:
        for name, value in {**started.environment, "HOME": str(tmp_path), "VF_RUN_ID": "run-of-tests"}.items():
            monkeypatch.setenv(name, value)
        yield started
        assert [sandbox.id for sandbox in started.living] == []
