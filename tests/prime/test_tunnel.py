"""A way from sandboxes to the interception that is dead is found and replaced; one that is slow, or unseen, is not."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from opencode_env.cli_agent.interception import GatewayConfig, RoleInterceptionServer, tunnel
from opencode_env.cli_agent.interception_servers import role_interception, role_server
from opencode_env.cli_agent.rollout import rollout_of
from verifiers.v1.agent import AgentConfig, make_agent
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.errors import TunnelError
from verifiers.v1.interception import (
    ElasticInterceptionPoolConfig,
    InterceptionServerConfig,
    StaticInterceptionPoolConfig,
)
from verifiers.v1.session import RolloutSession
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask

from tests.support.prime_tunnel import LoopbackTunnel
from tests.support.reverse_proxy import ReverseProxy, reverse_proxy
from tests.support.waiting import until

OFTEN = GatewayConfig(probe=0.05)


def session() -> RolloutSession:
    """A rollout that makes no calls."""
    client = EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="NO_SUCH_KEY")
    agent = make_agent(AgentConfig(model="m", client=client))
    task: TraceTask[TaskData] = TraceTask(type="Task", data=TaskData(prompt="?"), key="k", hash="h")
    return RolloutSession(ctx=agent.ctx, trace=Trace(task=task, agent=AgentInfo(config=agent.config)))


def server_behind(proxy: ReverseProxy, gateway: GatewayConfig = OFTEN) -> RoleInterceptionServer:
    config = InterceptionServerConfig(tunnel=proxy.tunnel)
    return role_server(config, requires_tunnel=True, gateway=gateway)


@asynccontextmanager
async def watched(
    gateway: GatewayConfig = OFTEN,
) -> AsyncIterator[tuple[RoleInterceptionServer, ReverseProxy, tunnel.OpenTunnel]]:
    """A server behind a proxy, seen through it at least once."""
    async with reverse_proxy() as proxy, server_behind(proxy, gateway) as server:
        assert server.watched is not None
        found = server.watched.present
        assert found is not None
        await found.judge()
        yield server, proxy, found


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs come within tenths of seconds on the loopback, so less patience is needed."""
    monkeypatch.setattr(tunnel, "_AGAIN_S", 0.1)
    monkeypatch.setattr(tunnel, "_REST_S", (0.1, 0.2))


async def test_a_proxy_that_goes_is_found_and_a_new_rollout_waits_until_it_is_back() -> None:
    async with watched() as (server, proxy, found):
        cut_off = session()
        async with server.acquire(cut_off) as (url, _, _):
            assert url == proxy.url
            await tunnel.require_tunnel(rollout_of(cut_off.trace).tunnel, doubted=True)
            await proxy.stop()
            await tunnel.until_lost(rollout_of(cut_off.trace).tunnel)
            with pytest.raises(TunnelError, match=f"127.0.0.1:{proxy.port}, is dead: Client"):
                await tunnel.require_tunnel(rollout_of(cut_off.trace).tunnel, doubted=False)
        waiting = asyncio.ensure_future(server.acquire(session()).__aenter__())
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await proxy.start()
        url, model_secret, state_secret = await waiting
        assert url == proxy.url
        server.unregister(model_secret, state_secret)
        assert found.lost.done()


async def test_an_agent_that_failed_is_told_from_its_way_at_once() -> None:
    """Nobody waits for the next sign, which would be due in minutes."""
    async with watched(GatewayConfig(probe=600.0)) as (server, proxy, _):
        rollout = session()
        async with server.acquire(rollout):
            await proxy.stop()
            with pytest.raises(TunnelError):
                await tunnel.require_tunnel(rollout_of(rollout.trace).tunnel, doubted=True)


async def test_no_way_for_long_is_a_typed_error_of_the_next_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "_NEW_TUNNEL_S", 0.3)
    async with watched() as (server, proxy, found):
        await proxy.stop()
        await asyncio.wait_for(asyncio.shield(found.lost), 60)
        with pytest.raises(TunnelError, match="no tunnel from the sandboxes"):
            await server.acquire(session()).__aenter__()


async def test_a_proxy_that_is_back_soon_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "_AGAIN_S", 2.0)
    async with watched() as (_, proxy, found):
        await proxy.stop()
        await until(lambda: found.in_doubt)
        await proxy.start()
        await found.judge()
        assert not found.in_doubt
        assert not found.lost.done()


async def test_a_url_that_this_machine_never_reached_is_not_called_dead() -> None:
    proxy = ReverseProxy()
    async with server_behind(proxy) as server:
        assert server.watched is not None
        for _ in range(5):
            assert server.watched.present is not None
            await server.watched.present.judge()
        async with server.acquire(session()) as (url, _, _):
            assert url == proxy.url


async def test_a_url_that_leads_to_something_else_is_dead() -> None:
    async with watched() as (_, proxy, found):
        other = InterceptionServerConfig()
        async with role_server(other) as unrelated:
            proxy.target = unrelated.port
            assert "HTTP 401" in await asyncio.wait_for(asyncio.shield(found.lost), 60)


async def test_a_slow_way_is_not_dead_and_one_that_says_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "_TIMEOUT_S", 1.5)
    async with watched() as (_, proxy, found):
        proxy.hold = 0.4
        for _ in range(3):
            await found.judge()
        assert not found.in_doubt
        proxy.hold = 600.0
        assert "no answer" in await asyncio.wait_for(asyncio.shield(found.lost), 60)


async def test_a_way_on_which_calls_come_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "_TIMEOUT_S", 0.2)
    async with watched() as (server, proxy, found):
        assert server.watched is not None
        proxy.hold = 600.0
        for _ in range(5):
            judging = asyncio.ensure_future(found.judge())
            while not judging.done():
                server.watched.note_request()
                await asyncio.sleep(0.02)
        assert not found.lost.done()


async def test_a_machine_that_is_held_up_calls_no_way_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"_TIMEOUT_S": 0.05, "_AT_ONCE_S": 0.03, "_AGAIN_S": 0.01}.items():
        monkeypatch.setattr(tunnel, name, seconds)
    async with watched() as (_, _, found):
        for _ in range(50):
            time.sleep(0.08)
            await asyncio.sleep(0)
        assert not found.lost.done()


@pytest.fixture
async def tunnels(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[LoopbackTunnel]]:
    """verifiers' Prime tunnel, whose client is faked at its public class."""
    import prime_tunnel

    monkeypatch.setenv("PRIME_API_KEY", "test")
    monkeypatch.setattr(prime_tunnel, "Tunnel", LoopbackTunnel)
    monkeypatch.setattr(LoopbackTunnel, "opened", [])
    yield LoopbackTunnel.opened
    assert all(one.stopped for one in LoopbackTunnel.opened)
    for one in LoopbackTunnel.opened:
        await one.proxy.stop()


@pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecatedSince20")
async def test_a_tunnel_that_cannot_be_watched_is_dead_and_replaced(
    tunnels: list[LoopbackTunnel], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = role_interception(ElasticInterceptionPoolConfig(), True, (), OFTEN)
    problem = tunnel.WatchedTunnel._problem

    async def broken(watched: tunnel.WatchedTunnel, url: str, **options: bool) -> str:
        if url == tunnels[0].proxy.url:
            raise KeyError(url)
        return await problem(watched, url, **options)

    async with pool:
        first = session()
        async with pool.acquire(first) as one:
            monkeypatch.setattr(tunnel.WatchedTunnel, "_problem", broken)
            await asyncio.wait_for(tunnel.until_lost(rollout_of(first.trace).tunnel), 60)
            with pytest.raises(TunnelError, match="KeyError"):
                await tunnel.require_tunnel(rollout_of(first.trace).tunnel, doubted=False)
            async with pool.acquire(session()) as two:
                assert two[0] != one[0]


@pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecatedSince20")
async def test_rollouts_share_a_prime_tunnel_and_get_a_new_one_when_it_is_dead(tunnels: list[LoopbackTunnel]) -> None:
    pool = role_interception(ElasticInterceptionPoolConfig(multiplex=2), True, (), OFTEN)
    async with pool:
        first, second = session(), session()
        async with pool.acquire(first) as one, pool.acquire(second) as two:
            assert one[0] == two[0] == tunnels[0].proxy.url
            await tunnel.require_tunnel(rollout_of(first.trace).tunnel, doubted=True)
            await tunnels[0].proxy.stop()
            losing = [
                asyncio.ensure_future(tunnel.until_lost(rollout_of(lost.trace).tunnel)) for lost in (first, second)
            ]
            await asyncio.wait_for(asyncio.gather(*losing), 60)
            third = session()
            async with pool.acquire(third) as three:
                assert three[0] != one[0]
                await tunnel.require_tunnel(rollout_of(third.trace).tunnel, doubted=True)
            for lost in (first, second):
                with pytest.raises(TunnelError):
                    await tunnel.require_tunnel(rollout_of(lost.trace).tunnel, doubted=False)
        assert tunnels[0].stopped


async def test_a_fixed_set_of_servers_serves_where_it_can_be_reached() -> None:
    async with reverse_proxy() as good, reverse_proxy() as bad:
        servers = [InterceptionServerConfig(tunnel=proxy.tunnel) for proxy in (bad, good)]
        pool = role_interception(StaticInterceptionPoolConfig(servers=servers), True, (), OFTEN)
        async with pool:
            async with pool.acquire(session()) as (url, _, _):
                assert url == bad.url
            watched = pool.servers[0].watched  # type: ignore[attr-defined]
            await watched.present.judge()
            found = watched.present
            await bad.stop()
            await asyncio.wait_for(asyncio.shield(found.lost), 60)
            async with pool.acquire(session()) as (url, _, _):
                assert url == good.url


async def test_nobody_looks_where_that_is_switched_off_or_nobody_is_remote() -> None:
    proxy = ReverseProxy()
    async with server_behind(proxy, GatewayConfig(probe=None)) as server:
        assert server.watched is None
        assert server.base_url == proxy.url
    async with role_server(InterceptionServerConfig(), gateway=OFTEN) as server:
        assert server.watched is None
        rollout = session()
        async with server.acquire(rollout):
            await tunnel.require_tunnel(rollout_of(rollout.trace).tunnel, doubted=True)
