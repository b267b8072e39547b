"""Which build fits which machine."""

import pytest
from opencode_env.agents.opencode.builds import DEFAULT_VERSION, PINNED, RIPGREP_VERSION, Platform, platform_from_probe


@pytest.mark.parametrize(
    ("machine", "libc", "flags", "package"),
    [
        ("x86_64", "glibc", "fpu avx avx2 sse", "opencode-linux-x64"),
        ("amd64", "", "avx2", "opencode-linux-x64"),
        ("x86_64", "glibc", "fpu avx avx512f", "opencode-linux-x64-baseline"),
        ("x86_64", "musl", "avx2", "opencode-linux-x64-musl"),
        ("x86_64", "musl", "", "opencode-linux-x64-baseline-musl"),
        ("aarch64", "glibc", "", "opencode-linux-arm64"),
        ("arm64", "musl", "", "opencode-linux-arm64-musl"),
    ],
)
def test_the_probe_decides_the_build(machine: str, libc: str, flags: str, package: str) -> None:
    assert platform_from_probe(machine, libc, flags).package == package


def test_a_processor_without_a_build_is_named() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        platform_from_probe("riscv64", "glibc", "")


def test_the_default_version_and_ripgrep_are_pinned_for_this_projects_machines() -> None:
    for platform in (Platform("x64"), Platform("x64", avx2=False)):
        assert f"{platform.package}@{DEFAULT_VERSION}" in PINNED
        assert f"{platform.ripgrep_package}@{RIPGREP_VERSION}" in PINNED
