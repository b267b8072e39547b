"""Brings the programs `opencode` and `rg` into a sandbox, and records how they came and what that moved.

The directory that `install` returns holds an executable `opencode` of the configured version. One probe tells what the
sandbox is and has; what must be written is written under a temporary name and renamed. What a sandbox downloads is kept
only when it has the checksum that the host names, and no sandbox is told credentials: an address that holds some is
refused.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from opencode_rubrics import run_checked
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.toolbox.pieces import send_in_pieces
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.runtimes import Runtime

from opencode_env.agents.named.npm import DOWNLOAD_TIMEOUT_SECONDS, run_npm
from opencode_env.agents.opencode.builds import (
    PINNED,
    RIPGREP_VERSION,
    CachedBuild,
    Platform,
    ensure_build,
    host_platform,
    packed_build,
    platform_from_probe,
)
from opencode_env.agents.opencode.config import OpenCodeHarnessConfig
from opencode_env.agents.opencode.state import program
from opencode_env.cli_agent.traces import AnyTrace, agent_record

logger = logging.getLogger("verifiers.v1.opencode_env.install")

TOLD_AFTER = 10
"""Sandboxes that are given the same bytes before a warning says so."""


@dataclass
class InstallRecord:
    """One installation, as `trace.info["agent"]["install"]` shows it."""

    way: Literal["present", "download", "upload"] = "present"
    """`present`: it was there, in the image or shown by this machine."""
    bytes: int = 0
    """What was moved into the sandbox, packed."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By stage: `check` what is there, `download` or `upload`, `unpack`, `verify`."""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the body to a stage."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 3)

    def add_to(self, trace: AnyTrace) -> None:
        agent_record(trace)["install"] = asdict(self)


class InstallTraffic:
    """Counts what one process has moved into sandboxes, by where it came from; what could be spared is told once."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._told = False

    def count(self, record: InstallRecord, origin: str, *, chosen: bool) -> None:
        """Count an installation whose bytes came from `origin`; with `chosen`, the configuration asked for that."""
        self._times[origin] += 1
        self._bytes[origin] += record.bytes
        if chosen or self._told or self._times[origin] < TOLD_AFTER:
            return
        self._told = True
        total, each = self._bytes[origin] / 1e6, self._bytes[origin] / self._times[origin] / 1e6
        told = (
            "%d sandboxes of this process were each given the same %.0f MB from %s, %.0f MB so far, and every further "
            "one will be (install = auto chose the %s): give the sandboxes an image that holds OpenCode (make image), "
            "or name a mirror of your own (--env.agent.harness.mirror), or choose this way to hear no more of it "
            "(--env.agent.harness.install %s)"
        )
        logger.warning(told, self._times[origin], each, origin, total, record.way, record.way)


_TRAFFIC = InstallTraffic()

ImageKey = tuple[str, str, str, str] | None
"""Runtime type, image, asset directory and version; None for a sandbox without an image."""

_IMAGE_VERSIONS: dict[tuple[ImageKey, str], str] = {}
"""Versions that images' own binaries named, by path: asking costs 0.7 CPU-seconds."""

_IMAGE_PROGRAMS: dict[ImageKey, str] = {}
"""Where an image holds OpenCode and ripgrep."""

_PUT_INTO: set[ImageKey] = set()
"""Images into whose sandboxes they were put here: what one of those has already, the image need not have."""

_UPLOADS: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
MAX_CONCURRENT_UPLOADS = 8
"""Each upload holds one piece (8 MiB) in memory while it lasts."""


class Download(NamedTuple):
    """One program in one gzipped tar archive: the address, the checksum of the program, its path in the archive."""

    name: str
    url: str
    sha256: str
    member: str


def downloads(config: OpenCodeHarnessConfig, platform: Platform, digest: str) -> list[Download]:
    """Return what a sandbox downloads (blocking); ripgrep first."""
    base = (config.mirror or configured_registry()).rstrip("/")
    ripgrep = PINNED[f"{platform.ripgrep_package}@{RIPGREP_VERSION}"].binary_sha256
    return [
        Download("rg", _archive(base, platform.ripgrep_package, RIPGREP_VERSION), ripgrep, "package/bin/rg"),
        Download("opencode", _archive(base, platform.package, config.version), digest, "package/bin/opencode"),
    ]


def _archive(base: str, package: str, version: str) -> str:
    return f"{base}/{package}/-/{package.rpartition('/')[2]}-{version}.tgz"


@cache
def configured_registry() -> str:
    """The address of the registry that npm on this machine is configured for (blocking)."""
    address = run_npm(["config", "get", "registry"], Path.cwd(), "registry").strip()
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or parts.username is not None:
        raise HarnessError(
            "the address of npm's registry holds credentials or cannot be reached from sandboxes: name another with "
            "--env.agent.harness.mirror, or use --env.agent.harness.install upload"
        )
    return address


@dataclass(frozen=True)
class SandboxFacts:
    """Holds what a sandbox is and has."""

    platform: Platform
    ready: tuple[str, ...]
    """Complete directories of ours under the asset directory."""
    found: str
    """Path of an `opencode` of the image's own, or empty."""
    ripgrep: str
    """Path of an `rg` of the image's own, or empty."""


async def install(
    config: OpenCodeHarnessConfig, runtime: Runtime, *, trust_image: bool = True, record: InstallRecord | None = None
) -> str:
    """Make OpenCode available in `runtime`; returns the directory to put on PATH.

    An image that was once seen to hold it is not asked again: in a container every question costs 0.1 CPU-seconds.
    With `trust_image` false it is. What was done is written into `record`.

    Raises:
        HarnessError: when the strategy cannot deliver the pinned version; the message says what to change.
    """
    if abilities_of(runtime).is_this_machine:  # accepted without confinement: it sees this machine's files
        return str((await asyncio.to_thread(ensure_build, config.version, host_platform())).directory)
    image = getattr(getattr(runtime, "config", None), "image", None)
    key: ImageKey = None if image is None else (runtime.type, image, config.asset_dir, config.version)
    if trust_image and key in _IMAGE_PROGRAMS:
        return _IMAGE_PROGRAMS[key]
    box = runtime.with_user(None) if runtime.user is not None else runtime
    record = InstallRecord() if record is None else record
    with record.stage("check"):
        probe = await probe_sandbox(config, box)
        found = await _present(config, box, probe, key)
    if found is not None:
        return found
    _PUT_INTO.add(key)
    pinned = PINNED.get(f"{probe.platform.package}@{config.version}")
    if config.install == "download" or (config.install == "auto" and not runtime.is_local and pinned is not None):
        if pinned is None:
            raise HarnessError(
                f"no checksum is pinned for {probe.platform.package} {config.version}: use "
                "--env.agent.harness.install upload"
            )
        try:
            return await _download(config, box, probe.platform, pinned.binary_sha256, record)
        except HarnessError as error:
            if config.install == "download":
                raise
            logger.warning("sandbox %s: %s; uploading it from this machine instead", runtime.name, error)
    build = await asyncio.to_thread(ensure_build, config.version, probe.platform)
    return await upload(config, box, build, record)


async def _present(config: OpenCodeHarnessConfig, box: Runtime, probe: SandboxFacts, key: ImageKey) -> str | None:
    """The directory of what the sandbox has already; None for nothing, or for an image's own binary without an `rg`."""
    suffix = f"-{config.version}-"
    for directory in probe.ready:
        name = PurePosixPath(directory).name
        if suffix in name and probe.platform.runs(name):
            return directory if key in _PUT_INTO else _remember(key, directory)
    if probe.found and (config.install == "image" or (config.install == "auto" and probe.ripgrep)):
        version = await _image_version(box, probe.found, key)
        if version == config.version:
            if not probe.ripgrep:
                logger.warning("the sandbox has no ripgrep (`rg`): OpenCode's glob and grep tools will fail in it")
            return _remember(key, str(PurePosixPath(probe.found).parent))
        if config.install == "image":
            raise HarnessError(
                f"the image's {probe.found} is OpenCode {version}, wanted is {config.version}: rebuild the image or "
                f"set --env.agent.harness.version {version}"
            )
    if config.install == "image":
        raise HarnessError(
            f"install = image, but there is no opencode in {config.asset_dir} or on PATH of the sandbox: put "
            f"OpenCode {config.version} into the image (make image) or use --env.agent.harness.install auto"
        )
    return None


async def _image_version(runtime: Runtime, path: str, key: ImageKey) -> str:
    if key is None or (key, path) not in _IMAGE_VERSIONS:
        result = await run_checked(runtime, [path, "--version"], f"{path} --version failed", error=HarnessError)
        _IMAGE_VERSIONS[key, path] = result.stdout.strip()
    return _IMAGE_VERSIONS[key, path]


def _remember(key: ImageKey, directory: str) -> str:
    if key is not None:
        _IMAGE_PROGRAMS[key] = directory
    return directory


async def probe_sandbox(config: OpenCodeHarnessConfig, runtime: Runtime) -> SandboxFacts:
    """Ask a sandbox what it is and has; one command."""
    argv = ["sh", "-c", program("probe.sh"), "probe", config.asset_dir, config.version]
    result = await run_checked(runtime, argv, "cannot probe the sandbox")
    pairs = [line.partition("=") for line in result.stdout.splitlines()]
    facts = {key: value for key, _, value in pairs}
    if "machine" not in facts:
        raise SandboxError(f"cannot probe the sandbox: it answered {result.stdout.strip()[-500:]!r}")
    try:
        platform = platform_from_probe(facts["machine"], facts.get("libc", ""), facts.get("flags", ""))
    except ValueError as error:
        raise HarnessError(str(error)) from error
    ready = tuple(value for key, _, value in pairs if key == "ready")
    return SandboxFacts(platform, ready, facts.get("found", ""), facts.get("rg", ""))


async def upload(
    config: OpenCodeHarnessConfig, runtime: Runtime, build: CachedBuild, record: InstallRecord | None = None
) -> str:
    """Send a cached build into the sandbox, packed, in pieces that are checked there; the marker file comes last.

    Raises:
        SandboxError: it could not be sent or unpacked.
    """
    record = InstallRecord() if record is None else record
    directory = f"{config.asset_dir}/{build.directory.name}"
    uploads = _UPLOADS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_CONCURRENT_UPLOADS))
    packed = await asyncio.to_thread(packed_build, build)
    with record.stage("wait"):
        await uploads.acquire()
    try:
        with record.stage("upload"):
            checking = await send_in_pieces(runtime, packed, f"{directory}.tar.gz")
    finally:
        uploads.release()
    record.seconds["upload"] = round(record.seconds["upload"] - checking, 3)
    record.seconds["verify"] = round(checking, 3)
    with record.stage("unpack"):
        argv = ["sh", "-c", program("unpack.sh"), "unpack", f"{directory}.tar.gz", directory]
        # A slow disk takes the binary (185 MB) in that time.
        await run_checked(runtime, argv, f"unpacking {directory}.tar.gz failed", seconds=120.0)
    record.way, record.bytes = "upload", packed.stat().st_size
    _TRAFFIC.count(record, "this machine", chosen=config.install != "auto")
    return directory


async def _download(
    config: OpenCodeHarnessConfig, runtime: Runtime, platform: Platform, digest: str, record: InstallRecord
) -> str:
    """Have the sandbox download the programs, in five tries for each; returns their directory."""
    directory = f"{config.asset_dir}/{platform.package}-{config.version}-{digest[:12]}"
    wanted = await asyncio.to_thread(downloads, config, platform, digest)
    jitter = str(random.randrange(1000))  # from here: sandboxes of one snapshot may share their chance
    operands = [operand for one in wanted for operand in one]
    result = await run_checked(
        runtime,
        ["sh", "-c", program("download.sh"), "download", directory, jitter, *operands],
        "the sandbox could not download OpenCode",
        seconds=DOWNLOAD_TIMEOUT_SECONDS,
        error=HarnessError,
        advice="name a mirror that it can reach (--env.agent.harness.mirror), put OpenCode into the image (install = "
        "image) or upload it (install = upload)",
    )
    told = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    record.way, record.bytes = "download", int(told.get("bytes", 0))
    record.seconds |= {stage: float(told[stage]) for stage in ("download", "unpack", "verify") if stage in told}
    origin = urlsplit(wanted[-1].url).hostname or "one address"
    _TRAFFIC.count(record, origin, chosen=config.install != "auto" or config.mirror is not None)
    return directory
