"""Brings the programs `opencode` and `rg` into a sandbox and says where they are.

Invariant: the directory that `install` returns holds an executable `opencode` of the configured version. One probe
tells what the sandbox is and has; what must be written is written under a temporary name and renamed.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from pathlib import PurePosixPath

from opencode_rubrics import run_checked
from opencode_rubrics.verifiers_versions import is_this_machine
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.runtimes import Runtime

from opencode_env.cli_agent.npm import DOWNLOAD_TIMEOUT_SECONDS
from opencode_env.opencode.build_cache import CachedBuild, ensure_build, host_platform
from opencode_env.opencode.builds import PINNED, Platform, platform_from_probe
from opencode_env.opencode.harness_config import OpenCodeHarnessConfig
from opencode_env.opencode.state import program

logger = logging.getLogger("verifiers.v1.opencode_env.install")

_IMAGE_VERSIONS: dict[tuple[str, str, str], str] = {}
"""Versions that images' own binaries named, by runtime type, image and path: asking costs 0.7 CPU-seconds."""

ImageKey = tuple[str, str, str, str] | None
"""Runtime type, image, asset directory and version; None for a sandbox without an image."""

_IMAGE_PROGRAMS: dict[ImageKey, str] = {}
"""Where an image holds OpenCode and ripgrep."""

_UPLOADS: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
MAX_CONCURRENT_UPLOADS = 2
"""Each upload holds the binary (185 MB) in memory while it lasts."""

_PLACE_TIMEOUT_SECONDS = 120.0
"""A slow disk reads and counts the binary in that."""


@dataclass(frozen=True)
class Probe:
    """What a sandbox is and has."""

    platform: Platform
    ready: tuple[str, ...]
    """Complete directories of ours under the asset directory."""
    found: str
    """Path of an `opencode` of the image's own, or empty."""
    ripgrep: str
    """Path of an `rg` of the image's own, or empty."""


async def install(config: OpenCodeHarnessConfig, runtime: Runtime, *, trust_image: bool = True) -> str:
    """Make OpenCode available in `runtime`; returns the directory to put on PATH.

    An image that was once seen to hold it is not asked again: in a container every question costs 0.1 CPU-seconds.
    With `trust_image` false it is.

    Raises:
        HarnessError: when the strategy cannot deliver the pinned version; the message says what to change.
        SandboxError: when the sandbox does not answer.
    """
    if is_this_machine(runtime):  # accepted without confinement: it sees this machine's files
        return str((await asyncio.to_thread(ensure_build, config.version, host_platform())).directory)
    key = _image_key(config, runtime)
    if trust_image and key in _IMAGE_PROGRAMS:
        return _IMAGE_PROGRAMS[key]
    box = runtime.with_user(None) if runtime.user is not None else runtime
    probe = await probe_sandbox(config, box)
    suffix = f"-{config.version}-"
    if config.install != "image":
        for directory in probe.ready:
            if suffix in PurePosixPath(directory).name:
                return _remember(key, directory)
    if config.install in ("auto", "image") and probe.found:
        version = await _image_version(box, probe.found)
        if version == config.version:
            return await _beside_image(config, box, probe, key)
        if config.install == "image":
            raise HarnessError(
                f"the image's {probe.found} is OpenCode {version}, wanted is {config.version}: rebuild the image or "
                f"set --env.agent.harness.version {version}"
            )
    if config.install == "image":
        raise HarnessError(
            f"install = image, but there is no opencode in {config.asset_dir} or on PATH of the sandbox: put "
            f"OpenCode {config.version} into the image or use --env.agent.harness.install auto"
        )
    if config.install == "download" or (config.install == "auto" and not runtime.is_local):
        if (digest := _download_checksum(config, probe.platform)) is not None:
            return await _download(config, box, probe.platform, digest)
        if config.install == "download":
            raise HarnessError(
                f"no checksum is pinned for {probe.platform.package} {config.version}: set "
                "--env.agent.harness.download-sha256, or use --env.agent.harness.install upload"
            )
    build = await asyncio.to_thread(ensure_build, config.version, probe.platform)
    return await upload(config, box, build)


async def probe_sandbox(config: OpenCodeHarnessConfig, runtime: Runtime) -> Probe:
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
    return Probe(platform, ready, facts.get("found", ""), facts.get("rg", ""))


async def upload(config: OpenCodeHarnessConfig, runtime: Runtime, build: CachedBuild) -> str:
    """Write a cached build into the sandbox, the marker file last."""
    directory = f"{config.asset_dir}/{build.name}"
    uploads = _UPLOADS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_CONCURRENT_UPLOADS))
    async with uploads:
        for name in ("rg", "opencode", "complete.json"):
            data = await asyncio.to_thread((build.directory / name).read_bytes)
            await _place(runtime, f"{directory}/{name}", data)
    return directory


async def _place(runtime: Runtime, path: str, data: bytes) -> None:
    """Write a program under a name of this call and rename it, so that nobody runs half a file."""
    temporary = f"{path}.{hashlib.sha256(data[-4096:]).hexdigest()[:8]}.part"
    await runtime.write(temporary, data)
    script = 'chmod 755 "$1" && [ "$(wc -c <"$1")" -eq "$3" ] && mv -f "$1" "$2"'
    argv = ["sh", "-c", script, "place", temporary, path, str(len(data))]
    await run_checked(runtime, argv, f"uploading {path} failed", seconds=_PLACE_TIMEOUT_SECONDS)


async def _beside_image(config: OpenCodeHarnessConfig, runtime: Runtime, probe: Probe, key: ImageKey) -> str:
    """The directory of the image's own binary, with an `rg` added where the image has none."""
    directory = str(PurePosixPath(probe.found).parent)
    if probe.ripgrep:
        return _remember(key, directory)
    if config.install == "auto" and runtime.is_local:
        build = await asyncio.to_thread(ensure_build, config.version, probe.platform)
        await _place(runtime, f"{directory}/rg", await asyncio.to_thread((build.directory / "rg").read_bytes))
        return directory
    logger.warning("the sandbox has no ripgrep (`rg`): OpenCode's glob and grep tools will fail in it")
    return _remember(key, directory)


def _image_key(config: OpenCodeHarnessConfig, runtime: Runtime) -> ImageKey:
    image = getattr(getattr(runtime, "config", None), "image", None)
    return None if image is None else (runtime.type, image, config.asset_dir, config.version)


def _remember(key: ImageKey, directory: str) -> str:
    if key is not None:
        _IMAGE_PROGRAMS[key] = directory
    return directory


async def _image_version(runtime: Runtime, path: str) -> str:
    image = getattr(getattr(runtime, "config", None), "image", None)
    key = (runtime.type, str(image), path)
    if image is None or key not in _IMAGE_VERSIONS:
        result = await run_checked(runtime, [path, "--version"], f"{path} --version failed", error=HarnessError)
        _IMAGE_VERSIONS[key] = result.stdout.strip()
    return _IMAGE_VERSIONS[key]


def _download_checksum(config: OpenCodeHarnessConfig, platform: Platform) -> str | None:
    pinned = PINNED.get(f"{platform.package}@{config.version}")
    return config.download_sha256 or (pinned.binary_sha256 if pinned else None)


async def _download(config: OpenCodeHarnessConfig, runtime: Runtime, platform: Platform, digest: str) -> str:
    directory = f"{config.asset_dir}/{platform.package}-{config.version}-{digest[:12]}"
    url = config.download_url.format(version=config.version, package=platform.package)
    await run_checked(
        runtime,
        ["sh", "-c", program("download.sh"), "download", url, digest, directory],
        "the sandbox could not download OpenCode",
        seconds=DOWNLOAD_TIMEOUT_SECONDS,
        error=HarnessError,
        advice="put it into the image (install = image) or upload it (install = upload)",
    )
    build = await asyncio.to_thread(ensure_build, config.version, platform)
    for name in ("rg", "complete.json"):
        await _place(runtime, f"{directory}/{name}", await asyncio.to_thread((build.directory / name).read_bytes))
    return directory
