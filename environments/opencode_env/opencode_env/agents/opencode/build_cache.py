"""The host's cache of OpenCode and ripgrep: one directory per build, filled once, shared by every process.

Invariant: what is in a directory under the final name matched its checksums before it got there (`make_once`).
"""

import base64
import hashlib
import json
import logging
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from opencode_rubrics.cache import cache_root, make_once
from verifiers.v1.errors import HarnessError

from opencode_env.agents.named.npm import run_npm
from opencode_env.agents.opencode.builds import PINNED, RIPGREP_VERSION, Platform, platform_from_probe

logger = logging.getLogger("verifiers.v1.opencode_env.install")

PROGRAMS = ("opencode", "rg")
_MARKER = "complete.json"
_PACKED = "programs.tar.gz"


@dataclass(frozen=True)
class CachedBuild:
    """A complete cache directory with the programs `opencode` and `rg`, and the checksum of the first."""

    directory: Path
    binary_sha256: str


def host_platform() -> Platform:
    """The build that fits this machine."""
    flags = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    libc = "musl" if any(Path("/lib").glob("ld-musl-*")) else "glibc"
    return platform_from_probe(os.uname().machine, libc, flags)


def ensure_build(version: str, platform: Platform, root: Path | None = None) -> CachedBuild:
    """The cached build of OpenCode `version` for `platform`, downloaded through npm when missing (blocking).

    Raises:
        HarnessError: when npm is missing, the download fails, or a checksum does not match.
    """
    final = _directory(version, platform, root)
    make_once(final, _MARKER, lambda directory: _fill(directory, version, platform))
    return _complete(final)


def cached_build(version: str, platform: Platform, root: Path | None = None) -> CachedBuild | None:
    """The build if this machine holds it already, else None."""
    final = _directory(version, platform, root)
    return _complete(final) if (final / _MARKER).exists() else None


def packed_build(build: CachedBuild) -> Path:
    """The build as one gzipped tar archive, for uploads; made when it is missing (blocking, some ten seconds)."""
    packed = build.directory.with_name(f"packed-{build.directory.name}")
    make_once(packed, _PACKED, lambda staged: _pack_build(build, staged / _PACKED))
    return packed / _PACKED


def _pack_build(build: CachedBuild, target: Path) -> None:
    logger.info("packing OpenCode for uploads: once per machine")
    with tarfile.open(target, "w:gz", compresslevel=6) as tar:
        for name in (*PROGRAMS, _MARKER):
            member = tar.gettarinfo(build.directory / name, name)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            with (build.directory / name).open("rb") as content:
                tar.addfile(member, content)


def _directory(version: str, platform: Platform, root: Path | None) -> Path:
    return (root or cache_root()) / f"{platform.package}-{version}-rg{RIPGREP_VERSION}"


def _complete(directory: Path) -> CachedBuild:
    return CachedBuild(directory, json.loads((directory / _MARKER).read_text())["opencode"])


def _fill(staged: Path, version: str, platform: Platform) -> None:
    logger.info("downloading OpenCode %s (%s) and ripgrep: once per machine", version, platform.package)
    sums = {
        "opencode": _fetch(platform.package, version, "package/bin/opencode", staged / "opencode"),
        "rg": _fetch(platform.ripgrep_package, RIPGREP_VERSION, "package/bin/rg", staged / "rg"),
    }
    (staged / _MARKER).write_text(json.dumps(sums))


def _fetch(package: str, version: str, member: str, target: Path) -> str:
    """Download `package@version`, check it, write its `member` to `target`; returns the program's SHA-256."""
    spec = f"{package}@{version}"
    pinned = PINNED.get(spec)
    expected = pinned.archive_sha512 if pinned else _published_integrity(spec)
    run_npm(["pack", spec, "--silent", "--pack-destination", str(target.parent)], target.parent, spec)
    (archive,) = target.parent.glob("*.tgz")
    try:
        _check_integrity(archive, expected, spec)
        with tarfile.open(archive) as tar:
            source = tar.extractfile(member)
            if source is None:
                raise HarnessError(f"npm package {spec} holds no file {member!r}; pick another version")
            with source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise HarnessError(f"npm package {spec} cannot be unpacked: {error}") from error
    finally:
        archive.unlink(missing_ok=True)
    target.chmod(0o755)
    digest = file_sha256(target)
    if pinned and digest != pinned.binary_sha256:
        raise HarnessError(f"{member} of {spec} has SHA-256 {digest}, pinned is {pinned.binary_sha256}; not used")
    return digest


def _check_integrity(archive: Path, expected: str, what: str) -> None:
    """Refuse a file that differs from npm's `sha512-<base64>` checksum: a corrupt or truncated download."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").digest()
    actual = "sha512-" + base64.b64encode(digest).decode()
    if actual != expected:
        raise HarnessError(
            f"download of {what} is corrupt: checksum {actual[:24]}… instead of {expected[:24]}…; it was discarded, "
            "run again (if it persists, clear npm's cache: npm cache clean --force)"
        )


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _published_integrity(spec: str) -> str:
    answer = run_npm(["view", spec, "dist.integrity"], Path.cwd(), spec).strip()
    if not answer.startswith("sha512-"):
        raise HarnessError(f"the npm registry publishes no SHA-512 checksum for {spec}; pick another version")
    return answer
