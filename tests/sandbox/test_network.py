"""What can be reached from inside, and from outside."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop
from rollout_sandbox.confined import ConfinedRuntime, LocalSandboxConfig, network, provision_confined
from rollout_sandbox.confined.network import MAX_CONNECTIONS, _End, is_loopback, is_own_machine

from tests.support.waiting import settled, until

from .conftest import sh

pytestmark = pytest.mark.usefixtures("sandboxes")
uvloop.new_event_loop().close()  # libuv's first loop opens a pipe for the process's life, which no test leaves behind

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LONG = 8 << 20
GET = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=60).read().decode())"
TALK = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
s.sendall(sys.argv[2].encode()); s.shutdown(socket.SHUT_WR)
data = b""
while chunk := s.recv(1 << 16): data += chunk
print(len(data), data[:20].decode())
"""


@contextlib.asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[int]:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError):
            await handler(reader, writer)
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()
        await asyncio.sleep(0)


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    host = next(line for line in request.split(b"\r\n") if line.lower().startswith(b"host:"))
    body = request.split()[1] + b" " + host
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body))
    await writer.drain()


async def test_only_the_named_origin_is_reachable_and_its_url_stays_the_same(runtime: ConfinedRuntime) -> None:
    async with served(hello) as named, served(hello) as other:
        url = runtime.host_url(f"http://127.0.0.1:{named}/v1/x?y=1")
        assert url == f"http://127.0.0.1:{named}/v1/x?y=1"
        assert runtime.host_url(f"http://127.0.0.1:{named}/state") == f"http://127.0.0.1:{named}/state"
        reached = await runtime.run(["python3", "-c", GET, url], {})
        assert reached.stdout == f"/v1/x?y=1 Host: 127.0.0.1:{named}\n", reached
        refused = await runtime.run(["python3", "-c", GET, f"http://127.0.0.1:{other}/"], {})
        assert "Connection refused" in refused.stderr


async def test_nothing_outside_is_reachable_and_no_name_resolves(runtime: ConfinedRuntime) -> None:
    for address in ("192.0.2.1", "169.254.169.254", "8.8.8.8"):
        code = f"import socket; socket.create_connection(('{address}', 80), timeout=60)"
        assert "Network is unreachable" in (await runtime.run(["python3", "-c", code], {})).stderr
    code = "import socket; socket.getaddrinfo('example.com', 80)"
    assert (await runtime.run(["python3", "-c", code], {})).exit_code == 1
    assert (await sh(runtime, "ls /sys/class/net; cat /proc/net/dev | grep -c :")).stdout == "1\n"


async def test_a_port_taken_inside_gives_the_origin_another_port(runtime: ConfinedRuntime) -> None:
    async with served(hello) as port:
        taken = f"import socket, time; s = socket.create_server(('127.0.0.1', {port}))"
        await runtime.run_background(["python3", "-c", f"{taken}; open('up', 'w'); time.sleep(99)"], {}, "log")
        await sh(runtime, "while ! test -e up; do sleep 0.01; done")
        url = runtime.host_url(f"http://localhost:{port}/a")
        assert url.startswith("http://localhost:")
        assert url != f"http://localhost:{port}/a"
        other = runtime.host_url("http://localhost:9/b")
        assert runtime.original_url(url) == f"http://localhost:{port}/a"
        assert runtime.original_url(other) == "http://localhost:9/b"
        assert (await runtime.run(["python3", "-c", GET, url], {})).stdout.startswith("/a ")


@pytest.mark.parametrize("host", ["127.1", "2130706433", "[::ffff:127.0.0.1]"])
async def test_an_address_is_reached_however_it_is_written(runtime: ConfinedRuntime, host: str) -> None:
    async with served(hello) as port:
        url = runtime.host_url(f"http://{host}:{port}/a")
        assert runtime.original_url(url) == f"http://{host}:{port}/a"
        assert (await runtime.run(["python3", "-c", GET, url], {})).stdout.startswith("/a ")


def test_a_machines_own_addresses_are_known_however_they_are_written() -> None:
    loopback = ["localhost", "LocalHost.", "a.localhost", "127.0.0.1", "127.1", "127.0.0.1.", "0x7f.1", "017700000001"]
    loopback += ["2130706433", "::1", "[::1]", "::ffff:127.0.0.1"]
    for host in loopback:
        assert is_loopback(host)
        assert is_own_machine(host)
    for host in ("0.0.0.0", "0", "::", "[::]"):  # who listens there is reached by all, who calls there calls itself
        assert not is_loopback(host)
        assert is_own_machine(host)
    for host in ("", "10.0.0.1", "127.example.org", "localhost.example.org", "8.8", "::2", "127.0.0.256"):
        assert not is_own_machine(host)


async def test_a_remote_origin_keeps_its_name(runtime: ConfinedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(hello) as port:
        loop = asyncio.get_running_loop()
        resolve = loop.getaddrinfo

        async def fake_resolver(host: str, *args: object, **kwargs: object) -> object:
            return await resolve("127.0.0.1" if host == "mcp.example.com" else host, *args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(loop, "getaddrinfo", fake_resolver)
        url = runtime.host_url(f"http://mcp.example.com:{port}/mcp")
        assert url == f"http://mcp.example.com:{port}/mcp"
        assert runtime.host_url("https://mcp.example.com/mcp") == "https://mcp.example.com/mcp"
        assert f"Host: mcp.example.com:{port}" in (await runtime.run(["python3", "-c", GET, url], {})).stdout


async def test_half_closed_connections_and_large_bodies_pass(runtime: ConfinedRuntime) -> None:
    async def answer_after_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read()
        assert request == b"question"
        for _ in range(50):
            writer.write(b"x" * 100_000)
            await writer.drain()

    async with served(answer_after_eof) as port:
        runtime.host_url(f"http://127.0.0.1:{port}")
        result = await runtime.run(["python3", "-c", TALK, str(port), "question"], {})
        assert result.stdout == f"5000000 {'x' * 20}\n", result


async def test_a_reader_that_stops_makes_the_sender_wait(runtime: ConfinedRuntime) -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with served(pour) as port:
        runtime.host_url(f"http://127.0.0.1:{port}")
        code = f"import socket, time; s = socket.create_connection(('127.0.0.1', {port})); time.sleep(99)"
        await runtime.run_background(["python3", "-c", code], {}, "log")
        await until(lambda: sent > 0)
        await settled(lambda: sent)
        assert sent < 40 << 20


async def test_streamed_pieces_arrive_one_by_one(runtime: ConfinedRuntime) -> None:
    async def tick(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(3):
            writer.write(b"%d" % number)
            await reader.readexactly(1)  # what was written has arrived, with nothing after it

    async with served(tick) as port:
        runtime.host_url(f"http://127.0.0.1:{port}")
        code = (
            f"import socket; s = socket.create_connection(('127.0.0.1', {port}))\n"
            "while c := s.recv(99): print(c.decode()); s.send(b'.')"
        )
        assert (await runtime.run(["python3", "-c", code], {})).stdout == "0\n1\n2\n"


async def test_a_cut_answer_arrives_as_cut(runtime: ConfinedRuntime) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with served(cut) as port:
        url = runtime.host_url(f"http://127.0.0.1:{port}/")
        assert "Connection reset" in (await runtime.run(["python3", "-c", GET, url], {})).stderr


async def test_a_destination_that_is_gone_closes_the_connection(runtime: ConfinedRuntime) -> None:
    async with served(hello) as port:
        url = runtime.host_url(f"http://127.0.0.1:{port}/")
    assert (await runtime.run(["python3", "-c", GET, url], {})).exit_code == 1
    assert await runtime.alive()


@pytest.mark.parametrize(
    "shortage",
    [OSError(errno.EMFILE, "Too many open files"), RuntimeError("can't start new thread")],
    ids=["descriptors", "threads"],
)
async def test_a_connection_waits_while_the_host_is_short_of_what_it_needs(
    runtime: ConfinedRuntime, monkeypatch: pytest.MonkeyPatch, shortage: Exception
) -> None:
    failed: list[int] = []
    connect = network._connect

    async def short(host: str, port: int) -> socket.socket:
        if len(failed) < 3:
            failed.append(port)
            raise shortage
        return await connect(host, port)

    monkeypatch.setattr(network, "_connect", short)
    async with served(hello) as port:
        url = runtime.host_url(f"http://127.0.0.1:{port}/x")
        reached = await runtime.run(["python3", "-c", GET, url], {})
    assert (reached.stdout, failed) == (f"/x Host: 127.0.0.1:{port}\n", [port] * 3), reached.stderr


async def test_an_address_is_dialled_without_a_thread(
    runtime: ConfinedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object, **__: object) -> object:
        raise RuntimeError("can't start new thread")

    async with served(hello) as port:
        url = runtime.host_url(f"http://127.0.0.1:{port}/x")
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", no_thread)
        reached = await runtime.run(["python3", "-c", GET, url], {})
    assert reached.stdout == f"/x Host: 127.0.0.1:{port}\n", reached.stderr


async def test_the_log_says_once_why_connections_are_closed(
    runtime: ConfinedRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(network, "_SHORTAGE_SECONDS", -1.0)

    async def short(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    async with served(hello) as gone:
        refused = runtime.host_url(f"http://127.0.0.1:{gone}/")
    monkeypatch.setattr(network, "_connect", short)
    async with served(hello) as port:
        starved = runtime.host_url(f"http://127.0.0.1:{port}/")
        for url in (refused, refused, starved, starved):
            assert (await runtime.run(["python3", "-c", GET, url], {})).exit_code == 1
    told = [record.getMessage() for record in caplog.records if "a connection of the sandbox's" in record.getMessage()]
    assert [line.partition(" is closed: ")[0].rpartition(":")[2] for line in told] == [str(gone), str(port)]
    assert "ConnectionRefusedError" in told[0]
    assert "Too many open files" in told[1]


async def test_a_flood_of_connections_does_not_take_the_hosts_descriptors(runtime: ConfinedRuntime) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with served(hold) as port:
        runtime.host_url(f"http://127.0.0.1:{port}")
        code = (
            "import socket, resource, time\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))\n"
            f"kept = [socket.create_connection(('127.0.0.1', {port})) for _ in range(600)]\n"
            "open('done', 'w'); time.sleep(99)"
        )
        await runtime.run_background(["python3", "-c", code], {}, "log")
        await sh(runtime, "while ! test -e done; do sleep 0.01; done")
        await settled(lambda: len(os.listdir("/proc/self/fd")))
        # Three per connection, as this test serves the other end as well.
        assert len(os.listdir("/proc/self/fd")) < 3 * MAX_CONNECTIONS + 100


async def test_the_hosts_network_is_open_when_asked_for() -> None:
    async with served(hello) as port, provision_confined(LocalSandboxConfig(network="host")) as box:
        url = f"http://127.0.0.1:{port}/open"
        assert box.host_url(url) == url
        assert (await box.run(["python3", "-c", GET, url], {})).stdout.startswith("/open ")
        assert await box.expose(1234) == "http://127.0.0.1:1234"


class ForeignTransport:
    """As one of uvloop's: it has asyncio's methods and none of its classes."""

    def __init__(self) -> None:
        self.reading, self.written = True, b""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data


async def test_a_connection_is_relayed_on_an_event_loop_with_transports_of_its_own() -> None:
    ends, transports = [_End(lambda _: None) for _ in range(2)], [ForeignTransport() for _ in range(2)]
    ends[0].peer, ends[1].peer = ends[1], ends[0]
    for end, transport in zip(ends, transports, strict=True):
        end.connection_made(transport)  # type: ignore[arg-type]
    assert not any(transport.reading for transport in transports)
    ends[0].data_received(b"early")
    for end in ends:
        end.joined()
    ends[1].data_received(b"back")
    assert [transport.written for transport in transports] == [b"back", b"early"]
    assert all(transport.reading for transport in transports)


async def test_a_model_call_leaves_the_sandbox_on_uvloop() -> None:
    """In a thread, as an actor of Ray runs it: a call with an answer longer than any buffer, one from outside, and one
    whose answer is cut."""

    async def ask(text: str) -> None:
        async with served(answer) as port, provision_confined(LocalSandboxConfig()) as box:
            url = box.host_url(f"http://127.0.0.1:{port}/")
            told = await box.run(["python3", "-c", TALK, url.rpartition(":")[2].strip("/"), text], {})
            assert told.stdout == f"{len(text) + LONG} {text[:20]}\n", told.stderr
            assert (await box.run(["python3", "-c", GET, url], {})).exit_code == 1

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (asked := await reader.read(3)) == b"GET":
            writer.transport.abort()
            return
        writer.write(asked + await reader.read())
        for _ in range(LONG >> 16):
            writer.write(bytes(1 << 16))
            await writer.drain()

    await asyncio.to_thread(uvloop.run, ask("model call " * 3000))
