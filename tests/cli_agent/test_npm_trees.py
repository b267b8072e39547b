"""What verifiers' harnesses find in the sandbox: made once, complete or not at all, with an npm of the test's own."""

import asyncio
from pathlib import Path

import pytest
from opencode_env.agents.named.npm import SHOWN_IN, harness_binds
from verifiers.v1.errors import HarnessError
from verifiers.v1.harnesses import BashHarness, BashHarnessConfig, PiHarness, PiHarnessConfig

INSTALLS = """#!/bin/sh
echo "$@" >>{calls}
sleep 0.3
mkdir -p "$3/node_modules/installed"
echo 'a registry' >"$3/node_modules/.package-lock.json"
"""
BREAKS = """#!/bin/sh
mkdir -p "$3/node_modules/half"
echo 'npm error: the network is down' >&2
exit 1
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is `npm` here; the cache is empty."""
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    monkeypatch.setenv("OPENCODE_ENV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def write(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(0o755)


def pi(version: str) -> PiHarness:
    return PiHarness(PiHarnessConfig(id="pi", version=version))


async def test_rollouts_that_start_together_install_once(npm: Path, tmp_path: Path) -> None:
    write(npm, INSTALLS.format(calls=tmp_path / "calls"))
    both = await asyncio.gather(harness_binds(pi("1.2.3")), harness_binds(pi("1.2.3")))
    assert both[0] == both[1]
    node, agent = (tmp_path / "calls").read_text().splitlines()
    assert "--ignore-scripts" in node
    assert "--ignore-scripts" in agent
    assert "@earendil-works/pi-coding-agent@1.2.3" in agent
    assert [bind.target.rpartition("-")[0] for bind in both[0]] == [f"{SHOWN_IN}/node", f"{SHOWN_IN}/pi"]
    for bind in both[0]:
        assert [path.name for path in (bind.source / "node_modules").iterdir()] == ["installed"]


async def test_another_version_is_another_tree(npm: Path, tmp_path: Path) -> None:
    write(npm, INSTALLS.format(calls=tmp_path / "calls"))
    first, second = await harness_binds(pi("1.2.3")), await harness_binds(pi("1.2.4"))
    assert first[0] == second[0]
    assert first[1].source != second[1].source


async def test_a_failed_installation_says_what_npm_said_and_leaves_nothing(npm: Path, tmp_path: Path) -> None:
    write(npm, BREAKS)
    with pytest.raises(HarnessError, match=r"npm install node-linux-\S+ failed \(1\): npm error: the network is down"):
        await harness_binds(pi("1.2.3"))
    assert not [path for path in (tmp_path / "cache" / "harness-files").iterdir() if path.is_dir()]


async def test_a_machine_without_curl_is_told_before_anything_is_downloaded(
    npm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(npm, INSTALLS.format(calls=tmp_path / "calls"))
    monkeypatch.setenv("PATH", str(npm.parent))
    with pytest.raises(HarnessError, match="apt-get install curl"):
        await harness_binds(pi("1.2.3"))
    assert not (tmp_path / "calls").exists()


async def test_a_harness_that_installs_nothing_needs_no_npm(npm: Path) -> None:
    assert await harness_binds(BashHarness(BashHarnessConfig(id="bash"))) == []
    assert not npm.exists()
