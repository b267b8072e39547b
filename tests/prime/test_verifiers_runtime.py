"""verifiers' own Prime runtime against the server: what a box of it does on the platform it does here."""

from functools import partial

import pytest
from rollout_sandbox.compat import start_process
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import PrimeConfig, provision_runtime

from tests.prime.test_commands import is_there
from tests.support.prime_api import Plan, PrimeApi
from tests.support.waiting import cancelled


async def test_a_box_runs_commands_and_keeps_files(api: PrimeApi) -> None:
    async with provision_runtime(PrimeConfig(labels=["mine"]), env={"GIVEN": "value"}) as box:
        done = await box.run(["sh", "-c", "pwd; echo $GIVEN >&2; exit 7"], {})
        assert (done.exit_code, done.stdout, done.stderr) == (7, "/app\n", "value\n")
        data = bytes(range(256)) * 1024
        await box.write("made/data.bin", data)
        assert await box.read("/app/made/data.bin") == data
        assert await box.read("made/data.bin", max_bytes=len(data)) == data
        with pytest.raises(SandboxError, match="over the 10 byte limit"):
            await box.read("made/data.bin", max_bytes=10)
        (sandbox,) = api.living
        assert sandbox.labels == ["mine", "run-of-tests"]
        assert sandbox.request["timeout_minutes"] == -1
    assert api.requests["delete"] == 1


async def test_a_live_process_speaks_and_ends(api: PrimeApi) -> None:
    async with provision_runtime(PrimeConfig()) as box:
        process = await start_process(box, ["sh", "-c", "read line; echo $line back"], {})
        await process.write(b"there and\n")
        assert [chunk async for chunk in process.stdout] == [b"there and back\n"]
        assert await process.wait() == 0


async def test_a_box_that_is_not_ready_at_once_is_waited_for(api: PrimeApi) -> None:
    api.plan(Plan(boot_s=0.2, gateway_misses=1))
    async with provision_runtime(PrimeConfig()) as box:
        assert await box.alive()


async def test_a_cancelled_command_goes_on_in_the_sandbox(api: PrimeApi) -> None:
    """What our own runtime mends."""
    async with provision_runtime(PrimeConfig()) as box:
        running = box.run(["sh", "-c", "echo $$ >/tmp/pid; sleep 600"], {})
        await cancelled(running, partial(is_there, box, "/tmp/pid"))
        assert (await box.run(["sh", "-c", "kill -0 $(cat /tmp/pid)"], {})).exit_code == 0
