"""Whatever the platform answers to whichever request: a wrong key is said at once, and what may pass is tried again."""

import asyncio
import logging

import pytest
from opencode_env.cli_agent.outcomes import all_outcomes, retries_of_outcomes
from prime_sandboxes.core import client as sdk
from rollout_sandbox.errors import SandboxAccessError, SandboxGatewayError, SandboxNotReadyError
from rollout_sandbox.prime import PrimeLimits, PrimeQueue, ownership, provision_prime
from rollout_sandbox.prime import runtime as runtime_module
from rollout_sandbox.prime.command_line import main
from verifiers.v1.configs.retries import RetryConfig, RetryRule
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import PrimeConfig

from tests.prime.test_commands import running
from tests.support.prime_api import Fault, Plan, PrimeApi
from tests.support.sizes import size

FOR_EVER = 1 << 30
NO_KEY, PASSING = (401, 403), (429, 524)
PLAYED = size((401, 524), (*NO_KEY, *PASSING))
"""At each request; the signal's are all, and cheap."""
WHAT_TO_CHANGE = "set PRIME_API_KEY or run `prime login`, and PRIME_TEAM_ID for a team's"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long before another try."""
    monkeypatch.setattr(sdk._RateLimitAwareWait, "__call__", lambda *_: 0.01)
    monkeypatch.setattr("prime_sandboxes.process._STREAM_RECONNECT_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(runtime_module, "_PAUSES_S", (0.1,))
    monkeypatch.setattr(runtime_module, "_SILENCE_S", 0.1)
    monkeypatch.setattr(ownership, "_DELETION_PAUSES_S", (0.01, 0.01, 0.01))


async def use() -> None:
    """Whatever a rollout asks of a sandbox."""
    config = PrimeConfig(allow=["example.com"])
    room = PrimeQueue(PrimeLimits(creation_patience=0.3))
    async with room.place(config) as record, provision_prime(config, 60, record=record) as box:
        await box.write("/tmp/file", b"data")
        assert await box.read("/tmp/file") == b"data"
        assert (await box.run(["true"], {})).exit_code == 0
        await box.backend.prepare_execution(["http://127.0.0.1:1/v1"])
        await (await box.exec(["true"], {})).wait()


@pytest.mark.parametrize("status", PLAYED)
@pytest.mark.parametrize(
    "route", ["create", "statuses", "auth", "upload", "download", "Start", "last Start", "set_network"]
)
async def test_each_answer_to_each_request_of_a_rollout_is_an_error_of_its_kind(
    api: PrimeApi, monkeypatch: pytest.MonkeyPatch, route: str, status: int
) -> None:
    if route == "auth":  # the SDK asks for minutes whether the sandbox can be reached
        monkeypatch.setattr("prime_sandboxes.sandbox._creation_timeout_seconds", lambda _: 1.0)
    api.plan(Plan(boot_s=0.05, expired_tokens=1 if route == "auth" else 0))
    well = {"Start": 2, "last Start": 3}  # one is how the SDK sees that it is up, and one makes the work directory
    api.add(fault := Fault(route.split()[-1], status=status, times=FOR_EVER, after=well.get(route, 0)))
    with pytest.raises(SandboxError) as raised:
        await use()
    tries, fault.times = FOR_EVER - fault.times, 0
    if status in PASSING:
        assert type(raised.value) in (SandboxGatewayError, SandboxNotReadyError)
        return
    assert type(raised.value) is SandboxAccessError
    assert WHAT_TO_CHANGE in str(raised.value)
    assert "Start" in route or tries <= 2, "the SDK asks for a new way in once"


@pytest.mark.parametrize("status", PLAYED)
@pytest.mark.parametrize("route", ["Connect", "get", "auth"])
async def test_each_answer_on_the_way_back_to_a_command_whose_stream_broke_is_an_error_of_its_kind(
    api: PrimeApi, monkeypatch: pytest.MonkeyPatch, route: str, status: int
) -> None:
    """`Connect` attaches to it again, `auth` gives a new token for an old one; `get`, where no command gets through,
    says whether the sandbox is there."""
    monkeypatch.setattr(runtime_module, "_PAUSES_S", (0.01,))
    async with provision_prime(PrimeConfig(), 60) as box:
        command = await running(box, "until [ -e /tmp/go ]; do sleep 0.05; done; exit 5")
        faults = [Fault(route, status=status, times=FOR_EVER)]
        if route == "auth":
            faults.append(Fault("Connect", status=401, times=FOR_EVER))
        if route == "get":
            faults += [Fault(other, status=524, times=FOR_EVER) for other in ("Connect", "Start")]
        for fault in faults:
            api.add(fault)
        api.drop_streams()
        if route == "Connect" and status in PASSING:
            await box.write("/tmp/go", b"")
            assert (await command).exit_code == 5
        else:
            with pytest.raises(SandboxError) as raised:
                await command
            kind = SandboxAccessError if status in NO_KEY else SandboxGatewayError
            assert type(raised.value) is kind
        assert faults[0].times < FOR_EVER
        for fault in faults:
            fault.times = 0


@pytest.mark.parametrize("status", [*NO_KEY, *PASSING])
async def test_a_signal_that_is_refused_is_an_error_of_its_kind(api: PrimeApi, status: int) -> None:
    async with provision_prime(PrimeConfig(), 60) as box:
        process = await box.exec(["sleep", "600"], {})
        api.add(fault := Fault("SendSignal", status=status, times=FOR_EVER))
        with pytest.raises(SandboxError) as raised:
            await process.kill()
        assert type(raised.value) is (SandboxAccessError if status in NO_KEY else SandboxGatewayError)
        fault.times = 0


@pytest.mark.parametrize("status", PLAYED)
@pytest.mark.parametrize("route", ["delete", "list", "bulk_delete"])
async def test_a_deletion_that_is_refused_is_reported_and_a_wrong_key_is_not_tried_again(
    api: PrimeApi, caplog: pytest.LogCaptureFixture, route: str, status: int
) -> None:
    api.add(fault := Fault(route, status=status, times=FOR_EVER))
    with caplog.at_level(logging.ERROR):
        if route == "delete":
            await use()
        else:
            api.add(Fault("create", lost=True, times=3))
            with pytest.raises(SandboxGatewayError):
                await use()
    tries, fault.times = FOR_EVER - fault.times, 0
    (sandbox,) = api.living
    assert "could not be deleted and costs until its lifetime is over" in caplog.text
    assert next(label for label in sandbox.labels if label.startswith("sandbox:")) in caplog.text
    assert tries == 1 or status in PASSING or route == "bulk_delete"
    assert await asyncio.to_thread(main, ["clean", "--label", "run-of-tests", "--yes"]) == 0


def test_no_retry_of_an_episode_mends_a_key_unless_a_rule_says_so() -> None:
    rules = retries_of_outcomes(RetryConfig(max_retries=3), all_outcomes()).rules
    assert RetryRule(type="SandboxAccessError", max_retries=0) in rules
