"""An interception server keeps the clients that are used, and of the others the last few."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from opencode_env.cli_agent.interception.endpoint import MOST_IDLE, KeptClients
from verifiers.v1.clients import Client, EvalClientConfig

from tests.support.waiting import until

OPEN: list[str] = []
"""Base URLs of the HTTP clients that are open."""


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Notes what the real HTTP clients do."""
    made, closed = httpx.AsyncClient.__init__, httpx.AsyncClient.aclose

    def init(self: httpx.AsyncClient, *args: object, **options: object) -> None:
        made(self, *args, **options)  # type: ignore[arg-type]
        OPEN.append("open")

    async def aclose(self: httpx.AsyncClient) -> None:
        await closed(self)
        OPEN.remove("open")

    monkeypatch.setattr(httpx.AsyncClient, "__init__", init)
    monkeypatch.setattr(httpx.AsyncClient, "aclose", aclose)
    OPEN.clear()
    yield
    assert OPEN == []


def endpoint(number: int) -> EvalClientConfig:
    """One of many endpoints."""
    return EvalClientConfig(base_url=f"http://127.0.0.1:9/{number}/v1", api_key_var="NO_SUCH_KEY")


async def test_rollouts_of_one_endpoint_share_a_client_and_seats_do_not() -> None:
    kept = KeptClients()
    first = kept.lend("main", endpoint(1))
    assert kept.lend("main", endpoint(1)) is first
    assert kept.lend("sub", endpoint(1)) is not first
    kept.give_back("main", endpoint(1))
    kept.give_back("main", endpoint(1))
    assert kept.lend("main", endpoint(1)) is first
    await kept.close()


async def test_only_the_last_unused_ones_stay_open_and_none_is_closed_in_use() -> None:
    kept = KeptClients()
    used: Client = kept.lend("main", endpoint(0))
    for number in range(1, 3 * MOST_IDLE):
        kept.lend("main", endpoint(number))
        kept.give_back("main", endpoint(number))
    await asyncio.sleep(0)
    await until(lambda: len(OPEN) <= MOST_IDLE + 1)
    assert kept.lend("main", endpoint(0)) is used
    again = kept.lend("main", endpoint(3 * MOST_IDLE - 1))
    assert len(OPEN) == MOST_IDLE + 1
    kept.give_back("main", endpoint(3 * MOST_IDLE - 1))
    assert kept.lend("main", endpoint(3 * MOST_IDLE - 1)) is again
    await kept.close()
    kept.give_back("main", endpoint(0))
