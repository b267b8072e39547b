"""Which build of OpenCode and of ripgrep fits a machine, and the checksums that are pinned for them.

Invariant: an artifact is used only when its bytes match a checksum from here or, for a build that is not listed
here, the checksum that the npm registry publishes for that exact version.
"""

from dataclasses import dataclass
from typing import Literal

DEFAULT_VERSION = "1.18.33"
"""OpenCode release that this package was measured with."""

RIPGREP_VERSION = "1.18.0"
"""npm version of the ripgrep packages (the program inside calls itself by ripgrep's own version)."""


@dataclass(frozen=True)
class Platform:
    """What decides the build: processor, C library and whether the processor has AVX2."""

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
    """The platform that `uname -m`, the probe's C library and the processor flags describe.

    Raises:
        ValueError: for a processor that OpenCode has no Linux build for.
    """
    if (arch := _ARCHS.get(machine)) is None:
        raise ValueError(f"OpenCode has no Linux build for processor {machine!r}; use an x86_64 or arm64 sandbox")
    return Platform(arch, "musl" if libc == "musl" else "glibc", arch == "arm64" or "avx2" in flags.split())
