"""No sandbox is left, whatever becomes of the request for it, of its deletion, or of the process that asked."""

import asyncio
import json
import logging
import os
import pty
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prime_sandboxes import BulkDeleteSandboxResponse, CreateSandboxRequest, SandboxClient, SandboxListResponse
from rollout_sandbox.errors import (
    SandboxEndedError,
    SandboxGatewayError,
    SandboxImageError,
    SandboxNotReadyError,
    SandboxQuotaError,
)
from rollout_sandbox.prime import command_line as sandboxes
from rollout_sandbox.prime import ownership, provision_prime
from rollout_sandbox.prime.command_line import main
from rollout_sandbox.prime.ownership import platform
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import PrimeConfig

from tests.prime.conftest import provision
from tests.support.prime_api import Fault, Plan, PrimeApi
from tests.support.prime_api.sandboxes import Sandbox
from tests.support.programs import running
from tests.support.sizes import size
from tests.support.waiting import cancelled, until

HOLDER = str(Path(__file__).parent / "programs" / "holder.py")
"""A program that has, or asks for, a sandbox."""


def label_of(labels: Sequence[str]) -> str:
    """The one that no other sandbox has."""
    return next(one for one in labels if one.startswith("sandbox:"))


async def test_a_sandbox_carries_labels_and_a_lifetime(api: PrimeApi) -> None:
    await provision(lifetime=77)
    (sandbox,) = api.sandboxes
    assert sandbox.request["timeout_minutes"] == 77
    assert {"mine", "run-of-tests", "opencode-env"} < set(sandbox.labels)
    assert api.requests["delete"] == 1


@pytest.mark.parametrize(("lifetime", "idle"), [(36, 36), (77, 60), (-1, 60)])
async def test_a_sandbox_may_not_be_idle_for_longer_than_it_lives(api: PrimeApi, lifetime: int, idle: int) -> None:
    await provision(lifetime)
    asked = CreateSandboxRequest.model_validate(api.sandboxes[0].request)
    assert (asked.timeout_minutes, asked.idle_timeout_minutes) == (lifetime, idle)


async def test_a_sandbox_whose_lifetime_is_over_ends_its_commands(api: PrimeApi) -> None:
    async with PrimeApi(minute_s=1.0) as short:
        os.environ.update(short.environment)
        async with provision_prime(PrimeConfig(), 1) as box:
            with pytest.raises(SandboxEndedError, match="TIMEOUT"):
                await box.run(["sleep", "600"], {})


@pytest.mark.parametrize("failures", [0, 1, 2])
async def test_what_a_creation_made_whose_answers_are_all_lost_is_found_and_deleted_in_the_end(
    api: PrimeApi, failures: int
) -> None:
    api.add(Fault("create", lost=True, times=3), Fault("bulk_delete", status=500, times=failures))
    with pytest.raises(SandboxGatewayError):
        await provision()
    assert (len(api.sandboxes), api.living) == (1, [])


async def is_reported_and_deleted_at_the_end(api: PrimeApi, sandbox: Sandbox, said: str) -> None:
    """The log names a sandbox that could not be deleted, and the end of the process deletes it."""
    assert f"prime sandbox {sandbox.id} could not be deleted" in said
    assert label_of(sandbox.labels) in said
    await asyncio.to_thread(ownership.look_again)
    assert api.living == []


async def test_what_a_lost_creation_made_and_cannot_be_deleted_is_reported_and_tried_as_the_process_ends(
    api: PrimeApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.add(Fault("create", lost=True, times=3), Fault("bulk_delete", status=500, times=3))
    with pytest.raises(SandboxGatewayError):
        await provision()
    (sandbox,) = api.living
    await is_reported_and_deleted_at_the_end(api, sandbox, caplog.text)


async def test_a_sandbox_that_comes_when_nobody_expects_it_any_more_is_deleted_as_the_process_ends(
    api: PrimeApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.add(Fault("create", status=500))
    with pytest.raises(SandboxGatewayError):
        await provision()
    assert api.sandboxes == []
    label = caplog.text.split("its label is ")[1].split()[0]
    shared = ["mine", "run-of-tests", "opencode-env"]
    with platform() as client:
        for one in (label, "sandbox:of-another"):
            late = CreateSandboxRequest(name="one", docker_image="python:3.11-slim", labels=[*shared, one])
            await asyncio.to_thread(client.create, late)
    await asyncio.to_thread(ownership.look_again)
    (left,) = api.living
    assert "sandbox:of-another" in left.labels
    assert await asyncio.to_thread(main, ["clean", "--label", "sandbox:of-another", "--yes"]) == 0


async def test_the_way_into_a_deleted_sandbox_is_forgotten(api: PrimeApi, tmp_path: Path) -> None:
    async with provision_prime(PrimeConfig(), 60):
        (kept,) = tmp_path.rglob("sandbox_auth_cache.json")
        assert list(json.loads(kept.read_text())) == [api.living[0].id]
    assert json.loads(kept.read_text()) == {}


async def test_a_creation_that_is_cancelled_leaves_nothing(api: PrimeApi) -> None:
    api.add(Fault("create", delay=0.5))
    await cancelled(provision(), lambda: api.requests["create"])
    assert (len(api.sandboxes), api.living) == (1, [])


async def test_a_wait_that_is_cancelled_leaves_nothing(api: PrimeApi) -> None:
    api.plan(Plan(never_ready=True))
    await cancelled(provision(), lambda: api.requests["statuses"])
    assert (len(api.sandboxes), api.living) == (1, [])


async def test_a_use_that_is_cancelled_and_again_as_it_deletes_leaves_nothing(api: PrimeApi) -> None:
    api.add(Fault("delete", status=500), Fault("delete", delay=0.5))
    used = asyncio.Event()

    async def use() -> None:
        async with provision_prime(PrimeConfig(), 60):
            used.set()
            await asyncio.Event().wait()

    using = asyncio.ensure_future(use())
    await used.wait()
    using.cancel()
    await until(lambda: api.requests["delete"])
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert (len(api.sandboxes), api.living) == (1, [])


@pytest.mark.parametrize(
    ("plan", "fault", "error"),
    [
        (Plan(), Fault("create", status=402), SandboxQuotaError),
        (Plan(), Fault("create", status=500), SandboxGatewayError),
        (Plan(), Fault("create", status=400), SandboxError),
        (Plan(), Fault("create", status=503, times=3), SandboxGatewayError),
        (Plan(), Fault("create", status=408), SandboxGatewayError),
        (Plan(), Fault("statuses", status=504, times=100), SandboxGatewayError),
        (Plan(boot_s=0.1, fails="IMAGE_PULL_FAILED"), None, SandboxImageError),
        (Plan(boot_s=0.1, fails="OOM_KILLED"), None, SandboxNotReadyError),
        (Plan(boot_s=0.1, fails="NODE_LOST"), None, SandboxNotReadyError),
    ],
)
async def test_why_there_is_no_sandbox_is_told_by_the_type_of_the_error(
    api: PrimeApi, plan: Plan, fault: Fault | None, error: type[SandboxError]
) -> None:
    api.plan(plan)
    if fault is not None:
        api.add(fault)
    with pytest.raises(SandboxError) as raised:
        await provision()
    assert type(raised.value) is error


async def test_a_deletion_that_fails_is_tried_again(api: PrimeApi) -> None:
    api.add(Fault("delete", status=500, times=2))
    await provision()
    assert api.requests["delete"] == 3


PAGE = "<html>502 of a proxy, with 200</html>"


@pytest.mark.parametrize("failure", [{"status": 500}, {"page": PAGE}, {"delay": 5.0}], ids=["error", "page", "silence"])
async def test_a_deletion_that_fails_for_good_is_reported_and_tried_as_the_process_ends(
    api: PrimeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, failure: dict[str, Any]
) -> None:
    monkeypatch.setattr(ownership, "_DELETION_PAUSES_S", (0.0,))
    monkeypatch.setattr(ownership, "_DELETION_S", 0.5)
    api.add(Fault("delete", times=2, **failure))
    await provision()
    (sandbox,) = api.sandboxes
    await is_reported_and_deleted_at_the_end(api, sandbox, caplog.text)


async def test_a_page_instead_of_the_platforms_answers_is_an_error_of_the_way_and_what_may_live_is_reported(
    api: PrimeApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.add(Fault("create", page=PAGE), Fault("list", page=PAGE, times=3))
    with pytest.raises(SandboxGatewayError):
        await provision()
    assert "prime sandbox without a known id could not be deleted" in caplog.text


async def test_a_platform_that_cannot_be_connected_to_made_no_sandbox(
    api: PrimeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    monkeypatch.setenv("PRIME_API_BASE_URL", f"http://127.0.0.1:{port}")
    with pytest.raises(SandboxGatewayError):
        await provision()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def at_exit() -> BaseException | None:
    """What the process's last look ends with."""
    try:
        ownership.look_again()
    except BaseException as error:  # noqa: BLE001 - an interruption, which no thread passes on
        return error
    return None


async def test_all_a_process_has_is_deleted_at_once_as_it_ends(api: PrimeApi, caplog: pytest.LogCaptureFixture) -> None:
    async with provision_prime(PrimeConfig(), 60), provision_prime(PrimeConfig(), 60):
        before = api.requests["bulk_delete"]
        assert await asyncio.to_thread(at_exit) is None
        assert api.living == []
        assert api.requests["bulk_delete"] == before + 1
    assert "deleting 2 sandboxes" in caplog.text
    assert "may live on" not in caplog.text


@pytest.mark.parametrize("failure", ["refused", "hung", "interrupted"])
async def test_what_lives_on_as_the_process_ends_is_reported_whole(
    api: PrimeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    async with provision_prime(PrimeConfig(), 60), provision_prime(PrimeConfig(), 60):
        if failure == "refused":
            api.add(faults := Fault("bulk_delete", status=500, times=1 << 30))
        else:
            api.add(faults := Fault("*", delay=5.0, times=1 << 30))
            monkeypatch.setattr(ownership, "_EXIT_S", 0.5)
        if failure == "interrupted":
            monkeypatch.setattr(ownership, "list_sandboxes", Mock(side_effect=KeyboardInterrupt))
        error = await asyncio.to_thread(at_exit)
        assert isinstance(error, KeyboardInterrupt) == (failure == "interrupted")
        assert len(api.living) == 2
        (said,) = [record.message for record in caplog.records if record.levelno == logging.ERROR]
        for sandbox in api.living:
            assert sandbox.id in said
            assert label_of(sandbox.labels) in said
        faults.times = 0


async def test_the_command_lists_and_deletes_by_label_and_asks_before(
    api: PrimeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    async with provision_prime(PrimeConfig(labels=["one"]), 60), provision_prime(PrimeConfig(labels=["two"]), 60):
        assert await asyncio.to_thread(main, ["list", "--label", "run-of-tests", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == 2
        assert await asyncio.to_thread(main, ["clean"]) == 2
        assert "wants at least one --label" in capsys.readouterr().err
        assert await asyncio.to_thread(main, ["clean", "--label", "opencode-env", "--yes"]) == 2
        assert "wants at least one --label" in capsys.readouterr().err
        assert await asyncio.to_thread(main, ["clean", "--label", "one", "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert [sandbox.id in said for sandbox in api.living] == [True, False]
        assert await asyncio.to_thread(main, ["clean", "--label", "one"]) == 1, "no terminal to ask at"
        assert len(api.living) == 2
        assert await asyncio.to_thread(main, ["clean", "--label", "one", "--yes"]) == 0
        (left,) = api.living
        assert "two" in left.labels


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A descriptor: what is written there is typed at this process's standard input."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        yield ours
    os.close(ours)


async def test_at_a_terminal_it_asks_and_deletes_on_a_yes_only(api: PrimeApi, terminal: int) -> None:
    async with provision_prime(PrimeConfig(labels=["mine"]), 60):
        os.write(terminal, b"\n")
        assert await asyncio.to_thread(main, ["clean", "--label", "mine"]) == 1
        assert len(api.living) == 1
        os.write(terminal, b"y\n")
        assert await asyncio.to_thread(main, ["clean", "--label", "mine"]) == 0
        assert api.living == []


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
async def test_no_answer_to_the_question_is_a_no(
    api: PrimeApi,
    terminal: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: type[BaseException],
) -> None:
    monkeypatch.setattr("builtins.input", Mock(side_effect=end))
    async with provision_prime(PrimeConfig(labels=["mine"]), 60):
        assert await asyncio.to_thread(main, ["clean", "--label", "mine"]) == 1
        assert len(api.living) == 1
    assert capsys.readouterr().err == "opencode-sandboxes: interrupted: some may live on, list shows them\n"


async def test_a_page_instead_of_a_list_is_said_in_a_line(api: PrimeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.add(Fault("list", page=PAGE))
    assert await asyncio.to_thread(main, ["list"]) == 1
    assert capsys.readouterr().err.startswith("opencode-sandboxes: JSONDecodeError: ")


async def test_a_list_ends_at_an_empty_page(api: PrimeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = SandboxListResponse(sandboxes=[], total=0, page=1, per_page=100, has_next=True)
    monkeypatch.setattr(SandboxClient, "list", asked := Mock(return_value=empty))
    assert await asyncio.to_thread(main, ["list"]) == 0
    assert asked.call_count == 1


async def test_what_cannot_be_deleted_is_named(
    api: PrimeApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "_PAUSES_S", (0.0,))
    async with provision_prime(PrimeConfig(labels=["mine"]), 60):
        (sandbox,) = api.living
        busy = [{"sandbox_id": sandbox.id, "error": "busy"}]
        refused = BulkDeleteSandboxResponse(succeeded=[], failed=busy, message="")
        with monkeypatch.context() as patched:
            patched.setattr(SandboxClient, "bulk_delete", lambda *_, **__: refused)
            assert await asyncio.to_thread(main, ["clean", "--label", "mine", "--yes"]) == 1
        assert f"{sandbox.id} was not deleted: busy" in capsys.readouterr().err
        api.add(Fault("bulk_delete", status=500))
        assert await asyncio.to_thread(main, ["clean", "--label", "mine", "--yes"]) == 1
        assert f"{sandbox.id} was not deleted: HTTP 500" in capsys.readouterr().err


async def test_what_a_list_missed_is_deleted_too(api: PrimeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists have pages, and what is not shown yet moves to an earlier one while sandboxes end."""
    whole, lists = SandboxClient.list, 0

    def first_of(client: SandboxClient, **options: Any) -> SandboxListResponse:
        nonlocal lists
        lists += 1
        answer = whole(client, **options)
        return answer.model_copy(update={"sandboxes": answer.sandboxes[:1]}) if lists == 1 else answer

    async with provision_prime(PrimeConfig(labels=["mine"]), 60), provision_prime(PrimeConfig(labels=["mine"]), 60):
        monkeypatch.setattr(SandboxClient, "list", first_of)
        assert await asyncio.to_thread(main, ["clean", "--label", "mine", "--yes"]) == 0
        assert api.living == []


async def test_what_came_after_the_question_is_named_and_not_deleted(
    api: PrimeApi, terminal: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sandboxes, "_PAUSES_S", (0.0,))
    whole = SandboxClient.list
    async with provision_prime(PrimeConfig(labels=["mine"]), 60), provision_prime(PrimeConfig(labels=["mine"]), 60):
        asked = api.living[0].id

        def late(client: SandboxClient, labels: list[str]) -> list[Any]:
            found = whole(client, labels=labels, exclude_terminated=True).sandboxes
            return [one for one in found if one.id == asked or asked not in [living.id for living in api.living]]

        with monkeypatch.context() as patched:
            patched.setattr(sandboxes, "list_sandboxes", late)
            os.write(terminal, b"y\n")
            assert await asyncio.to_thread(main, ["clean", "--label", "mine"]) == 1
        (left,) = api.living
        assert f"{left.id} was not deleted: it is there still, or came meanwhile" in capsys.readouterr().err


async def test_sandboxes_that_the_platform_lists_by_mistake_are_not_touched(
    api: PrimeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SandboxClient.list

    def unfiltered(client: SandboxClient, labels: Sequence[str], **options: Any) -> SandboxListResponse:
        return whole(client, **options)

    async with provision_prime(PrimeConfig(labels=["mine"]), 60), provision_prime(PrimeConfig(labels=["theirs"]), 60):
        monkeypatch.setattr(SandboxClient, "list", unfiltered)
        assert await asyncio.to_thread(main, ["clean", "--label", "mine", "--yes"]) == 0
        (left,) = api.living
        assert "theirs" in left.labels


async def test_what_a_killed_process_left_is_found_by_the_label_of_its_run(api: PrimeApi) -> None:
    with running(HOLDER) as (process, _):
        await until(lambda: api.requests["Start"] >= 2)
        process.send_signal(signal.SIGKILL)
        await process.ended()
    assert len(api.living) == 1
    assert await asyncio.to_thread(main, ["clean", "--label", "run-of-tests", "--yes"]) == 0


async def test_an_interrupted_process_deletes_what_it_has(api: PrimeApi) -> None:
    with running(HOLDER) as (process, _):
        await until(lambda: api.requests["Start"] >= 2)
        process.send_signal(signal.SIGINT)
        await process.ended()
    assert api.living == []


async def test_a_process_interrupted_twice_while_it_asks_deletes_what_comes_of_it(api: PrimeApi) -> None:
    api.add(Fault("create", delay=1.0))
    with running(HOLDER) as (process, _):
        await until(lambda: api.requests["create"])
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.2)
        await process.ended()
    assert (len(api.sandboxes), api.living) == (1, [])


async def test_with_each_tenth_request_failing_each_use_ends_well_or_says_so_and_nothing_is_left(api: PrimeApi) -> None:
    api.add(Fault("*", status=503, share=0.07, times=10**6), Fault("*", lost=True, share=0.03, times=10**6))
    room = asyncio.Semaphore(8)

    async def use() -> str:
        async with room:
            try:
                async with provision_prime(PrimeConfig(), 60) as box:
                    return (await box.run(["echo", "well"], {})).stdout.strip()
            except SandboxError as error:
                return type(error).__name__

    uses = size(24, 200)
    outcomes = Counter(await asyncio.gather(*(use() for _ in range(uses))))
    assert set(outcomes) <= {"well", "SandboxGatewayError"}, outcomes
    assert outcomes["well"] > uses / 2, outcomes
    assert api.faults_happened > uses / 4
