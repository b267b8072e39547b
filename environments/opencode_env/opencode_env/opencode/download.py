"""Where sandboxes download OpenCode and ripgrep from, and how they do it.

Invariant: what a sandbox downloads is kept only when it has the checksum that the host names, and no sandbox is told
credentials: an address that holds some is refused.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from opencode_rubrics import run_checked
from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import Runtime

from opencode_env.named_agents.npm import DOWNLOAD_TIMEOUT_SECONDS, run_npm
from opencode_env.opencode.builds import PINNED, RIPGREP_VERSION, Platform
from opencode_env.opencode.harness_config import OpenCodeHarnessConfig
from opencode_env.opencode.install_record import InstallRecord
from opencode_env.opencode.state import program

_STAGES = ("download", "unpack", "verify")


@dataclass(frozen=True)
class Download:
    """One program in one gzipped tar archive."""

    name: str
    url: str
    sha256: str
    """Of the program."""
    member: str
    """Its path in the archive."""


def opencode_checksum(config: OpenCodeHarnessConfig, platform: Platform) -> str | None:
    """SHA-256 of the program `opencode`; None when neither the configuration nor this package knows it."""
    pinned = PINNED.get(f"{platform.package}@{config.version}")
    return config.download_sha256 or (pinned.binary_sha256 if pinned else None)


def downloads(config: OpenCodeHarnessConfig, platform: Platform, digest: str) -> list[Download]:
    """What a sandbox downloads (blocking); ripgrep first, unless OpenCode comes from an archive of the user's own.

    Raises:
        HarnessError: npm is missing or names no registry that sandboxes may be told.
    """
    if config.download_url is not None:
        url = config.download_url.format(version=config.version, package=platform.package)
        return [Download("opencode", url, digest, "opencode")]
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
    """The address of the registry that npm on this machine is configured for (blocking).

    Raises:
        HarnessError: npm is missing, or the address holds credentials.
    """
    address = run_npm(["config", "get", "registry"], Path.cwd(), "registry").strip()
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or parts.username is not None:
        raise HarnessError(
            "the address of npm's registry holds credentials or cannot be reached from sandboxes: name another with "
            "--env.agent.harness.mirror, or use --env.agent.harness.install upload"
        )
    return address


async def download(runtime: Runtime, wanted: Sequence[Download], directory: str, record: InstallRecord) -> None:
    """Have the sandbox download programs into a directory, which is complete then.

    Raises:
        HarnessError: it could not, in five tries for each.
        SandboxError: it is gone.
    """
    jitter = str(random.randrange(1000))  # from here: sandboxes of one snapshot may share their chance
    operands = [operand for one in wanted for operand in (one.name, one.url, one.sha256, one.member)]
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
    record.seconds |= {stage: float(told[stage]) for stage in _STAGES if stage in told}
