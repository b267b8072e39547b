"""OpenCode comes into a bare sandbox: downloaded from a mirror, else sent from here, checked, with the seconds told."""

import hashlib
import io
import logging
import tarfile
from collections.abc import AsyncIterator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from opencode_env.agents.named.npm import run_npm
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.builds import (
    DEFAULT_VERSION,
    PINNED,
    RIPGREP_VERSION,
    CachedBuild,
    Checksum,
    ensure_build,
    host_platform,
    packed_build,
)
from opencode_env.agents.opencode.install import (
    TOLD_AFTER,
    InstallRecord,
    InstallTraffic,
    configured_registry,
    downloads,
    install,
    upload,
)
from rollout_sandbox.errors import SandboxMemoryError
from rollout_sandbox.prime import provision_prime
from rollout_sandbox.toolbox import pieces
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.runtimes import PrimeConfig, Runtime

from tests.opencode.fake_npm import tgz
from tests.support.prime_api import Fault, PrimeApi

VERSION = "9.9.9"
PLACE = "/tmp/programs"
"""A directory that a sandbox of the server may write."""
PROGRAMS = {"opencode": b"#!/bin/sh\necho 9.9.9\n", "rg": b"#!/bin/sh\necho ripgrep\n"}


class Mirror(ThreadingHTTPServer):
    """Holds archives under the paths of the npm registry; each path may first answer other things."""

    def __init__(self, held: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.held = dict(held)
        self.instead: dict[str, list[bytes]] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/npm"


class _Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        others = self.server.instead.get(self.path)
        body = others.pop(0) if others else self.server.held.get(self.path, b"")
        if not body:
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


def path_of(name: str) -> str:
    """Where the mirror holds a program's archive."""
    if name == "rg":
        package = host_platform().ripgrep_package
        return f"/npm/{package}/-/{package.partition('/')[2]}-{RIPGREP_VERSION}.tgz"
    package = host_platform().package
    return f"/npm/{package}/-/{package}-{VERSION}.tgz"


def digest(name: str) -> str:
    """SHA-256 of a program."""
    return hashlib.sha256(PROGRAMS[name]).hexdigest()


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A mirror of small programs, which are pinned here."""
    rg = f"{host_platform().ripgrep_package}@{RIPGREP_VERSION}"
    for name, spec in (("opencode", f"{host_platform().package}@{VERSION}"), ("rg", rg)):
        monkeypatch.setitem(PINNED, spec, Checksum("sha512-", digest(name)))
    held = {path_of(name): tgz({f"package/bin/{name}": content}) for name, content in PROGRAMS.items()}
    with Mirror(held) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
async def box(api: PrimeApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runtime]:
    """A bare sandbox, of whose image nothing is known."""
    monkeypatch.setattr("opencode_env.agents.opencode.install._IMAGE_PROGRAMS", {})
    async with provision_prime(PrimeConfig(), 60) as started:
        yield started


@pytest.fixture
def small_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CachedBuild:
    """A build of a few pieces."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1 << 12)
    monkeypatch.setattr(pieces, "_PAUSES_S", (0.05, 0.05))
    directory = tmp_path / "builds" / "small"
    directory.mkdir(parents=True)
    noise = b"# " + hashlib.shake_256(b"noise").hexdigest(8000).encode() + b"\n"  # which hardly packs
    for name, content in PROGRAMS.items():
        (directory / name).write_bytes(content + noise)
        (directory / name).chmod(0o755)
    (directory / "complete.json").write_text("{}")
    return CachedBuild(directory, "")


def config(mirror: Mirror | None = None, **fields: Any) -> OpenCodeHarnessConfig:
    named = {"mirror": mirror.url} if mirror is not None else {}
    return OpenCodeHarnessConfig(id="opencode-env", version=VERSION, asset_dir=PLACE, **named, **fields)


async def said(box: Runtime, program: str) -> str:
    """What a program of the sandbox prints."""
    return (await box.run([program], {})).stdout.strip()


async def test_both_programs_come_from_the_mirror_with_two_requests_to_the_platform(
    api: PrimeApi, box: Runtime, mirror: Mirror
) -> None:
    before, record = api.requests.total(), InstallRecord()
    directory = await install(config(mirror), box, record=record)
    assert api.requests.total() == before + 2
    assert await said(box, f"{directory}/opencode") == VERSION
    assert await said(box, f"{directory}/rg") == "ripgrep"
    assert mirror.asked == [path_of("rg"), path_of("opencode")]
    assert (record.way, record.bytes) == ("download", sum(map(len, mirror.held.values())))
    assert set(record.seconds) == {"check", "download", "unpack", "verify"}
    assert await install(config(mirror), box, record=(again := InstallRecord())) == directory
    assert (again.way, again.bytes, len(mirror.asked)) == ("present", 0, 2)


async def test_a_mirror_that_fails_at_first_and_serves_wrong_bytes_is_asked_again(box: Runtime, mirror: Mirror) -> None:
    mirror.instead = {path_of("rg"): [b""], path_of("opencode"): [tgz({"package/bin/opencode": b"another"})]}
    directory = await install(config(mirror, install="download"), box)
    assert await said(box, f"{directory}/opencode") == VERSION
    assert len(mirror.asked) == 4


async def test_a_mirror_that_only_has_other_bytes_is_refused_or_gone_around(
    box: Runtime, mirror: Mirror, small_build: CachedBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    await box.write(f"{PLACE}/sleep", b"#!/bin/sh\n")
    await box.run(["chmod", "+x", f"{PLACE}/sleep"], {})
    quick = box.with_env({"PATH": f"{PLACE}:/usr/bin:/bin"})
    mirror.held[path_of("opencode")] = tgz({"package/bin/opencode": b"another"})
    with pytest.raises(HarnessError, match=rf"{path_of('opencode')}: SHA-256 .* expected {digest('opencode')}"):
        await install(config(mirror, install="download"), quick)
    mirror.held.clear()
    monkeypatch.setattr("opencode_env.agents.opencode.install.ensure_build", lambda *_: small_build)
    record = InstallRecord()
    directory = await install(config(mirror), quick, record=record)
    assert record.way == "upload"
    assert directory == f"{PLACE}/small"
    assert await said(box, f"{directory}/opencode") == VERSION


async def test_an_upload_travels_packed_and_in_pieces(api: PrimeApi, box: Runtime, small_build: CachedBuild) -> None:
    record, before = InstallRecord(), api.received_bytes
    directory = await upload(config(), box, small_build, record)
    assert await said(box, f"{directory}/rg") == "ripgrep"
    packed = packed_build(small_build).stat().st_size
    assert (record.way, record.bytes) == ("upload", packed)
    assert set(record.seconds) == {"wait", "upload", "verify", "unpack"}
    count = -(-packed // pieces.PIECE_BYTES)
    assert api.requests["upload"] == count > 2
    assert packed < api.received_bytes - before < 1.5 * packed + 20_000
    listed = (await box.run(["ls", PLACE, directory], {})).stdout.split()
    assert listed == [f"{PLACE}:", "small", f"{directory}:", "complete.json", "opencode", "rg"]


async def test_a_broken_upload_goes_on_at_the_piece_that_is_missing(
    api: PrimeApi, box: Runtime, small_build: CachedBuild
) -> None:
    api.add(Fault("upload", status=400, after=1))
    directory = await upload(config(), box, small_build)
    assert await said(box, f"{directory}/opencode") == VERSION
    count = -(-packed_build(small_build).stat().st_size // pieces.PIECE_BYTES)
    assert api.requests["upload"] == count + 1


async def test_a_piece_that_arrives_with_other_bytes_is_sent_again_and_alone(
    api: PrimeApi, box: Runtime, small_build: CachedBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, damaged = pieces._piece, [1]

    def damaging(source: Path, number: int) -> bytes:
        if number in damaged:
            damaged.remove(number)
            return b"other bytes"
        return read(source, number)

    await upload(config(), box, small_build)  # the sums of the pieces are known from here on
    await box.run(["rm", "-rf", f"{PLACE}/small"], {})
    before = api.requests["upload"]
    monkeypatch.setattr(pieces, "_piece", damaging)
    directory = await upload(config(), box, small_build)
    assert await said(box, f"{directory}/opencode") == VERSION
    assert api.requests["upload"] == 2 * before + 1


async def test_an_upload_that_never_arrives_fails_with_what_is_missing(
    api: PrimeApi, box: Runtime, small_build: CachedBuild
) -> None:
    api.add(Fault("upload", status=400, times=100, after=1))
    with pytest.raises(SandboxError, match=r"\d of \d pieces of .*/small.tar.gz are missing or differ: .*HTTP 400"):
        await upload(config(), box, small_build)
    assert (await box.run(["test", "-e", f"{PLACE}/small"], {})).exit_code != 0


async def test_a_sandbox_that_ends_under_the_install_keeps_the_reason_by_which_retry_rules_go(
    api: PrimeApi, box: Runtime, mirror: Mirror
) -> None:
    await api.end(api.living[0], "OOM_KILLED")
    with pytest.raises(SandboxMemoryError):
        await install(config(mirror), box)


def test_the_same_bytes_again_and_again_are_spoken_of_once(caplog: pytest.LogCaptureFixture) -> None:
    traffic = InstallTraffic()
    with caplog.at_level(logging.WARNING):
        for _ in range(2 * TOLD_AFTER):
            traffic.count(InstallRecord("download", 60_000_000), "registry.example", chosen=False)
            traffic.count(InstallRecord("upload", 60_000_000), "this machine", chosen=True)
    (told,) = [entry.getMessage() for entry in caplog.records]
    assert told.startswith("10 sandboxes of this process were each given the same 60 MB from registry.example, 600 MB")
    assert all(choice in told for choice in ("make image", "harness.mirror", "harness.install download"))


@pytest.mark.parametrize("address", ["ftp://mirror.example", "https://user:secret@mirror.example", "mirror.example"])
def test_a_mirror_that_a_sandbox_cannot_use_or_may_not_know_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="http or https address that every sandbox may know"):
        OpenCodeHarnessConfig(id="opencode-env", mirror=address)


def test_without_a_mirror_the_registry_of_npm_is_named_unless_it_holds_credentials(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(configured_registry.cache_clear)
    configured_registry.cache_clear()
    address = run_npm(["config", "get", "registry"], Path.cwd(), "registry").strip()
    named = [one.url for one in downloads(config(), host_platform(), digest("opencode"))]
    assert named == [address.rstrip("/") + path_of(name).removeprefix("/npm") for name in ("rg", "opencode")]
    configured_registry.cache_clear()
    monkeypatch.setattr(
        "opencode_env.agents.opencode.install.run_npm", lambda *_: "https://me:secret@registry.example/\n"
    )
    with pytest.raises(HarnessError, match=r"holds credentials .*harness\.mirror") as refused:
        downloads(config(), host_platform(), digest("opencode"))
    assert "secret" not in str(refused.value)


@pytest.mark.opencode
def test_the_packed_build_holds_what_the_build_holds() -> None:
    build = ensure_build(DEFAULT_VERSION, host_platform())
    with tarfile.open(packed_build(build)) as tar:
        sizes = {path.name: path.stat().st_size for path in build.directory.iterdir()}
        assert {member.name: member.size for member in tar} == sizes
        ripgrep = tar.extractfile("rg")
        assert isinstance(ripgrep, io.BufferedReader)
        assert ripgrep.read() == (build.directory / "rg").read_bytes()
