"""Connections into and out of a podman container's network, and its end when the agent starts."""

import asyncio

import pytest
from rollout_sandbox.conformance.subject import peer
from rollout_sandbox.conformance.test_network import ask, gateways, host_server
from rollout_sandbox.podman import PodmanConfig, PodmanRuntime, provision_podman
from verifiers.v1.errors import SandboxError

from tests.support.waiting import until

from .conftest import container_of, sh

pytestmark = pytest.mark.podman


async def test_an_endpoint_of_the_hosts_loopback_is_reached_where_it_was_named_and_no_other(
    shared_runtime: PodmanRuntime,
) -> None:
    async with host_server() as named, host_server() as other:
        url = shared_runtime.host_url(f"http://127.0.0.1:{named}/v1?a=b")
        assert url == f"http://127.0.0.1:{named}/v1?a=b"
        assert await ask(shared_runtime, "127.0.0.1", named) == "host"
        assert (await ask(shared_runtime, "127.0.0.1", other)).startswith("refused")
        assert shared_runtime.host_url("https://example.org/x") == "https://example.org/x"


async def test_a_taken_port_gets_another(shared_runtime: PodmanRuntime) -> None:
    await shared_runtime.run_background(peer("listen", "0.0.0.0", "8123"), {}, "log")
    await until(lambda: taken(shared_runtime))
    port = int(shared_runtime.host_url("http://127.0.0.1:8123/").rstrip("/").rpartition(":")[2])
    assert port != 8123


async def taken(runtime: PodmanRuntime) -> bool:
    return await ask(runtime, "127.0.0.1", 8123) == "inside"


async def test_a_container_that_may_reach_nothing_keeps_its_endpoints_only(podman_image: str) -> None:
    async with (
        host_server() as endpoint,
        host_server("0.0.0.0") as anywhere,
        provision_podman(PodmanConfig(image=podman_image, allow=[])) as box,
    ):
        assert box.network_restricted
        (host,) = await gateways(box)
        assert await ask(box, host, anywhere) == "host"
        routes = [box.host_url(f"http://127.0.0.1:{endpoint}/v1")]
        await box.backend.prepare_execution(routes)
        await box.backend.prepare_execution(routes)
        assert (await ask(box, host, anywhere)).startswith("refused")
        assert (await sh(box, "tail -n +3 /proc/net/dev | cut -d: -f1")).stdout.split() == ["lo"]
        assert await ask(box, "127.0.0.1", endpoint) == "host"
        await box.backend.prepare_execution(None)
        assert [await ask(box, each, anywhere) for each in await gateways(box)] == ["host"]


async def test_a_named_endpoint_is_reached_by_its_name_where_there_is_no_network(podman_image: str) -> None:
    async with host_server() as port, provision_podman(PodmanConfig(image=podman_image, allow=[])) as box:
        url = box.host_url(f"http://tools.localhost:{port}/")
        assert url == f"http://tools.localhost:{port}/"
        away = box.host_url("https://mcp.example.org/x")
        assert away == "https://mcp.example.org/x"
        await box.backend.prepare_execution([url, away])
        assert "mcp.example.org" in (await sh(box, "cat /etc/hosts; echo x >>/etc/hosts")).stdout
        assert "x\n" not in (await sh(box, "cat /etc/hosts")).stdout.replace("mcp.example.org\n", "")


async def test_an_unrestricted_container_keeps_its_network(shared_runtime: PodmanRuntime) -> None:
    await shared_runtime.backend.prepare_execution(["http://127.0.0.1:1/"])
    assert "eth0" in (await sh(shared_runtime, "cat /proc/net/dev")).stdout


async def test_a_network_that_podman_cannot_take_away_is_an_error(podman_image: str) -> None:
    async with provision_podman(PodmanConfig(image=podman_image, allow=[])) as box:
        removed = await asyncio.create_subprocess_exec("podman", "rm", "-f", container_of(box))
        assert await removed.wait() == 0
        with pytest.raises(SandboxError, match="podman inspect"):
            await box.backend.prepare_execution([])
