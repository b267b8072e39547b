"""The real SDK against the server: what it asks for is what it gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prime_sandboxes import (
    APIError,
    AsyncSandboxClient,
    CreateSandboxRequest,
    SandboxFileNotFoundError,
    SandboxImagePullError,
    SandboxNotRunningError,
    SandboxOOMError,
)

from tests.support.prime_api import Fault, Plan, PrimeApi


@asynccontextmanager
async def client() -> AsyncIterator[AsyncSandboxClient]:
    """A client of the SDK."""
    opened = AsyncSandboxClient()
    try:
        yield opened
    finally:
        await opened.aclose()


def asked(*labels: str) -> CreateSandboxRequest:
    """A request for a bare sandbox."""
    return CreateSandboxRequest(name="one", docker_image="python:3.11-slim", labels=list(labels))


@asynccontextmanager
async def sandbox(sdk: AsyncSandboxClient) -> AsyncIterator[str]:
    """The id of a sandbox that runs; deleted on exit."""
    made = await sdk.create(asked())
    try:
        await sdk.wait_for_creation(made.id)
        yield made.id
    finally:
        await sdk.delete(made.id)


async def test_a_sandbox_is_made_runs_commands_and_is_deleted(api: PrimeApi) -> None:
    async with client() as sdk, sandbox(sdk) as one:
        done = await sdk.execute_command(one, "pwd; echo $SAID >&2; exit 3", working_dir="/tmp", env={"SAID": "so"})
        assert (done.stdout, done.stderr, done.exit_code) == ("/tmp\n", "so\n", 3)
        job = await sdk.run_background_job(one, "echo from a job; exit 4", poll_interval=1)
        assert (job.stdout, job.exit_code) == ("from a job\n", 4)
        assert len(api.living) == 1
    assert api.requests["delete"] == 1
    assert api.requests["auth"] == 0, "the answer to a creation holds the way in"


async def test_files_go_up_and_come_down(api: PrimeApi) -> None:
    async with client() as sdk, sandbox(sdk) as one:
        data = bytes(range(256)) * 8192
        sent = await sdk.upload_bytes(one, "/tmp/new/data.bin", data, filename="data.bin")
        assert sent.size == len(data)
        assert (await sdk.execute_command(one, "wc -c </tmp/new/data.bin")).stdout.strip() == str(len(data))
        await sdk.execute_command(one, "printf 'a text' >/app/text")
        assert (await sdk.read_file(one, "/app/text")).content == "a text"
        with pytest.raises(SandboxFileNotFoundError):
            await sdk.read_file(one, "/app/none")
        assert api.received_bytes > len(data)


async def test_a_process_is_talked_to_signalled_and_found_again_when_its_stream_broke(api: PrimeApi) -> None:
    async with client() as sdk, sandbox(sdk) as one:
        process = await sdk.open_process(one, "read line; echo got $line; exec sleep 600")
        await process.write_stdin(b"this\n")
        assert await anext(process.stdout) == b"got this\n"
        api.drop_streams()
        await process.kill()
        assert await process.wait() == 128 + 9
        await process.aclose()
        assert api.requests["Connect"] == 1


async def test_lists_have_pages_and_labels_and_a_label_is_deleted_at_once(api: PrimeApi) -> None:
    async with client() as sdk:
        await asyncio.gather(*(sdk.create(asked("run", f"number-{number}")) for number in range(5)))
        first = await sdk.list(labels=["run"], per_page=3, exclude_terminated=True)
        assert (len(first.sandboxes), first.total, first.has_next) == (3, 5, True)
        assert len((await sdk.list(labels=["run", "number-2"])).sandboxes) == 1
        gone = await sdk.bulk_delete(labels=["run"])
        assert (len(gone.succeeded), gone.failed) == (5, [])
        assert (await sdk.list(labels=["run"], exclude_terminated=True)).total == 0


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("IMAGE_PULL_FAILED", SandboxImagePullError),
        ("OOM_KILLED", SandboxOOMError),
        ("NODE_LOST", SandboxNotRunningError),
    ],
)
async def test_a_sandbox_that_does_not_come_up_says_why(
    api: PrimeApi, reason: str, error: type[SandboxNotRunningError]
) -> None:
    api.plan(Plan(boot_s=0.1, fails=reason))
    async with client() as sdk:
        made = await sdk.create(asked())
        with pytest.raises(error):
            await sdk.wait_for_creation(made.id)


async def test_a_sandbox_that_its_machine_ended_is_no_longer_running(api: PrimeApi) -> None:
    async with client() as sdk:
        made = await sdk.create(asked())
        await sdk.wait_for_creation(made.id)
        await api.end(api.sandboxes[0], "OOM_KILLED")
        with pytest.raises(SandboxOOMError):
            await sdk.execute_command(made.id, "true")
        with pytest.raises(SandboxOOMError):
            await sdk.upload_bytes(made.id, "/tmp/file", b"data", filename="file")


async def test_what_passes_is_tried_again_by_the_sdk(api: PrimeApi) -> None:
    api.plan(Plan(gateway_misses=1, expired_tokens=2))
    api.add(Fault("create", status=503), Fault("create", lost=True), Fault("statuses", status=502))
    api.add(Fault("upload", status=408), Fault("upload", status=500))
    async with client() as sdk, sandbox(sdk) as one:
        await sdk.upload_bytes(one, "/tmp/file", b"data", filename="file")
        assert api.faults_happened == 5
        assert len(api.sandboxes) == 1, "a creation whose answer was lost is not another one"
        assert api.requests["auth"] == 1, "a token that was over is asked for again"


async def test_a_sandbox_may_not_be_asked_to_be_idle_for_longer_than_it_lives(api: PrimeApi) -> None:
    unchecked = asked().model_copy(update={"timeout_minutes": 36, "idle_timeout_minutes": 60})
    async with client() as sdk:
        with pytest.raises(APIError, match="HTTP 422"):
            await sdk.create(unchecked)
    assert api.sandboxes == []


async def test_what_does_not_pass_is_said(api: PrimeApi) -> None:
    api.add(Fault("create", status=402), Fault("create", status=400, body={"detail": "no such region"}))
    async with client() as sdk:
        with pytest.raises(APIError, match="Payment required"):
            await sdk.create(asked())
        with pytest.raises(APIError, match="HTTP 400: no such region"):
            await sdk.create(asked())
    assert api.sandboxes == []
