"""A full disk: a command still runs and says how it ended; a file that cannot be written is an error that says so."""

import asyncio
from pathlib import Path

import pytest
from opencode_env.cli_agent.outcomes import all_outcomes, retries_of_outcomes
from rollout_sandbox.errors import SandboxDiskError
from rollout_sandbox.prime import provision_prime
from rollout_sandbox.prime import runtime as runtime_module
from rollout_sandbox.programs import program_argv
from verifiers.v1.configs.retries import RetryConfig, RetryRule
from verifiers.v1.runtimes import PrimeConfig

from tests.support.prime_api import PrimeApi

TREE = [place for place in map(str, Path("/").iterdir()) if place not in ("/dev", "/proc", "/run", "/sys", "/tmp")]
SMALL = ["--dev", "/dev", "--size", "16384", "--tmpfs", "/tmp", "--size", "16384", "--tmpfs", "/dev/shm"]
RUN = program_argv("remote_run.sh", "/tmp/.vf-run-one", "1000")


async def on_full_disk(*filled: str) -> bytes:
    """What `remote_run.sh` prints of a command, and then of its end, where these directories are full."""
    fill = "".join(f"head -c 100000 /dev/zero >{directory}/fill 2>/dev/null; " for directory in filled)
    script = f'{fill}run() {{ "$@"; }}; run "$@" sh -c "echo found; exit 3"; run "$@" wait=1'
    tree = [word for place in TREE for word in ("--ro-bind", place, place)]
    command = ["bwrap", *tree, "--proc", "/proc", *SMALL, "sh", "-c", script, "sh", *RUN]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed


@pytest.mark.usefixtures("sandboxes")
@pytest.mark.parametrize("filled", [(), ("/tmp",), ("/dev/shm",)], ids=["none", "disk", "memory"])
async def test_a_command_runs_on_a_full_disk_and_its_end_is_found_again(filled: tuple[str, ...]) -> None:
    assert await on_full_disk(*filled) == b"ended 3 6 0\nfound\n" * 2


@pytest.mark.usefixtures("sandboxes")
async def test_a_sandbox_that_can_write_nowhere_says_that_it_is_full() -> None:
    assert await on_full_disk("/tmp", "/dev/shm") == b"full\nlost\n"


async def test_what_could_not_run_on_a_full_disk_has_failed_and_says_why(
    api: PrimeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str, *operands: str) -> list[str]:
        return ["sh", "-c", "echo full"] if name == "remote_run.sh" else program_argv(name, *operands)

    monkeypatch.setattr(runtime_module, "program_argv", full)
    async with provision_prime(PrimeConfig(), 60) as box:
        done = await box.run(["true"], {})
    assert (done.exit_code, done.stdout) == (125, "")
    assert "no space is left on the sandbox's disk" in done.stderr


async def test_a_file_that_does_not_fit_is_an_error_that_says_so_and_is_not_tried_again(
    api: PrimeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prime_sandboxes.sandbox.RETRY_409_BASE_DELAY", 0.01)
    async with provision_prime(PrimeConfig(), 60) as box:
        api.sandboxes[0].full = True
        with pytest.raises(
            SandboxDiskError, match=r"disk is full \(--env.agent.runtime.disk\).*no space left on device"
        ):
            await box.write("/app/file", b"data")
        assert (await box.run(["true"], {})).exit_code == 0
    assert (
        RetryRule(type="SandboxDiskError", max_retries=0)
        in retries_of_outcomes(RetryConfig(max_retries=3), all_outcomes()).rules
    )
