"""Promises about the network: endpoints of the rollout, and nothing else where nothing is allowed."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from unittest import SkipTest

import verifiers.v1 as vf

from rollout_sandbox.compat import backend_of
from rollout_sandbox.conformance.plugin import require_python
from rollout_sandbox.conformance.subject import (
    Subject,
    peer,
    until,
)

_GATEWAYS = "print(*(l.split()[2] for l in open('/proc/net/route') if l.split()[1] == '00000000'))"


@contextlib.asynccontextmanager
async def host_server(address: str = "127.0.0.1") -> AsyncIterator[int]:
    """The port of a server on this machine that answers `host`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(99)
            writer.write(b"host")
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(answer, address, 0) as server:
        yield server.sockets[0].getsockname()[1]


async def ask(box: vf.Runtime, host: str, port: int) -> str:
    """Return what a server answers to a program inside; `refused …` when it is not reached."""
    return (await box.run(peer("ask", host, str(port)), {})).stdout.strip()


async def gateways(box: vf.Runtime) -> list[str]:
    """The host's addresses on the sandbox's network."""
    found = await box.run(["python3", "-c", _GATEWAYS], {})
    return [".".join(str(byte) for byte in reversed(bytes.fromhex(word))) for word in found.stdout.split()]


async def _require_local(box: vf.Runtime) -> None:
    await require_python(box)
    if not box.is_local:
        raise SkipTest("it runs elsewhere, and reaches this machine by a tunnel")


async def test_a_named_endpoint_is_reached_and_no_other_port(subject: Subject) -> None:
    """Forward each URL that `host_url` is given, and give the sandbox a loopback of its own."""
    async with host_server() as named, host_server() as other, subject.box() as box:
        await _require_local(box)
        url = box.host_url(f"http://127.0.0.1:{named}/v1?a=b")
        assert url.endswith("/v1?a=b"), f"`host_url` lost the path: {url}"
        host, _, port = url.split("/")[2].partition(":")
        said = await ask(box, host, int(port))
        assert said == "host", f"it was not reached: {said}"
        assert (await ask(box, host, other)).startswith("refused"), "another port of this machine was reached"


async def test_a_sandbox_without_network_reaches_its_endpoints_alone(subject: Subject) -> None:
    """Take the interfaces away in `prepare_execution` where the policy allows nothing, and lead the endpoints in."""
    if not subject.has("allow"):
        raise SkipTest("its configuration has no `allow`")
    async with host_server() as endpoint, host_server("0.0.0.0") as anywhere, subject.box(allow=[]) as box:
        await _require_local(box)
        hosts = [*await gateways(box), socket.gethostbyname(socket.gethostname()), "1.1.1.1", "169.254.169.254"]
        url = box.host_url(f"http://127.0.0.1:{endpoint}/")
        await backend_of(box).prepare_execution([url])
        for host in hosts:
            for port in (anywhere, 80):
                said = await ask(box, host, port)
                assert said.startswith("refused"), f"{host}:{port} was reached: {said!r}"
        name, _, port_inside = url.split("/")[2].partition(":")
        said = await ask(box, name, int(port_inside))
        assert said == "host", f"the endpoint was not reached: {said}"


async def test_a_port_inside_is_reached_through_expose_until_the_end(subject: Subject) -> None:
    """Lead a port of this machine's loopback to the one inside."""
    async with subject.box() as box:
        await _require_local(box)
        await box.run_background(peer("listen", "127.0.0.1", "8123"), {}, "log")

        async def serving() -> bool:
            return await ask(box, "127.0.0.1", 8123) == "inside"

        await until(serving)
        url = await box.expose(8123)
        assert await box.expose(8123) == url, "a second `expose` of the port gave another URL"
        host, _, port = url.split("/")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"ping")
        said = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert said == b"inside", f"it answered {said!r}"
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        raise AssertionError(f"{url} is still open")
