"""PEP 723 scripts run inside with their dependencies, and the agent cannot touch them."""

import asyncio
from pathlib import Path

import pytest
from rollout_sandbox.confined import ConfinedRuntime, sandbox, uv_scripts
from verifiers.v1.errors import SandboxError

from .conftest import confined, sh

pytestmark = pytest.mark.usefixtures("sandboxes")

SCRIPT = """# /// script
# requires-python = ">=3.11"
# dependencies = ["packaging"]
# ///
import os, sys, packaging.version
newer = packaging.version.Version("1.10") > packaging.version.Version("1.9")
print(newer, sys.argv[1:], "VIRTUAL_ENV" in os.environ)
"""


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (uv_scripts, sandbox):
        monkeypatch.setattr(module, "SCRIPTS", tmp_path / "scripts")


async def test_a_script_finds_its_dependency_without_a_network(runtime: ConfinedRuntime) -> None:
    result = await runtime.run_uv_script(SCRIPT, ["a b"])
    assert (result.exit_code, result.stdout) == (0, "True ['a b'] True\n"), result
    argv = await runtime.prepare_uv_script(SCRIPT, activate=False)
    assert len(argv) == 2
    assert (await runtime.run(argv, {})).stdout == "True [] False\n"


async def test_the_agent_cannot_change_a_script_or_its_environment(runtime: ConfinedRuntime) -> None:
    interpreter, script = await runtime.prepare_uv_script(SCRIPT, activate=False)
    for attack in (f"echo x >> {script}", f"rm {interpreter}", f"touch {Path(interpreter).parents[1]}/x"):
        result = await sh(runtime, attack)
        # Where the sandbox has a user of its own the files are not even that user's.
        assert "Permission denied" in result.stderr or "Read-only file system" in result.stderr
    assert (await sh(runtime, f"ls -A {uv_scripts._LOCKS}")).exit_code != 0


async def test_many_rollouts_prepare_a_new_script_once() -> None:
    async with confined() as one, confined() as two:
        results = await asyncio.gather(*(box.run_uv_script(SCRIPT) for box in (one, two, one, two)))
    assert [result.stdout for result in results] == ["True [] True\n"] * 4


async def test_a_script_that_cannot_be_prepared_says_why(runtime: ConfinedRuntime) -> None:
    # No such release, and no such interpreter, here or elsewhere.
    for known, unknown in (('"packaging"', '"packaging==0.0.0.1"'), (">=3.11", ">=3.99")):
        with pytest.raises(SandboxError, match="failed to prepare uv script"):
            await runtime.run_uv_script(SCRIPT.replace(known, unknown))
