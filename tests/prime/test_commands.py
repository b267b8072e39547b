"""Commands of our own Prime runtime: their end is seen at once, whatever the way there does, or they are killed."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest
from opencode_env.cli_agent.process_fence import ProcessFence
from rollout_sandbox.errors import SandboxEndedError, SandboxGatewayError, SandboxMemoryError
from rollout_sandbox.exchange import COMMAND_ID_VARIABLE
from rollout_sandbox.prime import provision_prime
from rollout_sandbox.prime import runtime as runtime_module
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import PrimeConfig, ProgramResult, Runtime

from tests.support.prime_api import Fault, PrimeApi
from tests.support.waiting import cancelled, until


@pytest.fixture
async def box(api: PrimeApi) -> AsyncIterator[Runtime]:
    """A sandbox that is up."""
    async with provision_prime(PrimeConfig(), 60, {"GIVEN": "value"}) as started:
        yield started


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits less between its tries."""
    monkeypatch.setattr("prime_sandboxes.process._STREAM_RECONNECT_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr("prime_sandboxes.sandbox.RETRY_409_BASE_DELAY", 0.01)


async def is_there(box: Runtime, path: str) -> bool:
    """Whether a file of the sandbox holds something."""
    return (await box.run(["test", "-s", path], {})).exit_code == 0


async def running(box: Runtime, script: str) -> "asyncio.Future[ProgramResult]":
    """A command that has come as far as writing its process id to /tmp/pid."""
    command = asyncio.ensure_future(box.run(["sh", "-c", f"echo $$ >/tmp/pid; {script}"], {}))
    await until(partial(is_there, box, "/tmp/pid"))
    return command


async def test_a_command_costs_one_request(api: PrimeApi, box: Runtime) -> None:
    before = api.requests.total()
    done = await box.run(["sh", "-c", "pwd; echo $GIVEN >&2; exit 7"], {})
    assert (done.exit_code, done.stdout, done.stderr) == (7, "/app\n", "value\n")
    assert api.requests.total() == before + 1


async def test_output_arrives_whole_as_far_as_it_is_kept(box: Runtime) -> None:
    done = await box.run(["sh", "-c", "head -c 11000000 /dev/zero | tr '\\0' x; printf 'end\\377'"], {})
    assert len(done.stdout) == 10 << 20
    assert done.stdout.endswith("xend\ufffd")


async def test_a_command_beyond_what_a_line_holds_runs_too(box: Runtime) -> None:
    pieces = ["x" * 100_000, "y" * 100_000]
    done = await box.run(["sh", "-c", 'printf %s "$1$2" | wc -c', "count", *pieces], {})
    assert done.stdout.strip() == "200000"


async def test_what_a_command_leaves_running_is_not_waited_for(box: Runtime) -> None:
    done = await box.run(["sh", "-c", "sleep 600 & echo started"], {})
    assert (done.exit_code, done.stdout) == (0, "started\n")


@pytest.mark.parametrize("lost", [False, True])
async def test_the_end_is_seen_when_the_stream_broke_and_was_found_again_or_is_lost(
    api: PrimeApi, box: Runtime, lost: bool
) -> None:
    command = await running(box, "until [ -e /tmp/go ]; do sleep 0.1; done; echo survived; exit 5")
    (sandbox,) = api.living
    sandbox.misses = int(lost)
    api.drop_streams()
    await until(lambda: sandbox.misses == 0)
    await box.write("/tmp/go", b"")
    done = await command
    assert (done.exit_code, done.stdout) == (5, "survived\n")
    assert lost or api.requests["Connect"] == 1


async def test_a_command_whose_shell_somebody_killed_has_ended_so_with_what_it_started(box: Runtime) -> None:
    command = await running(box, "sleep 600")
    await box.run(["sh", "-c", "kill -9 $(cut -d ' ' -f 4 /proc/$(cat /tmp/pid)/stat)"], {})
    assert (await command).exit_code == 128 + 9
    assert (await box.run(["sh", "-c", "kill -0 $(cat /tmp/pid)"], {})).exit_code != 0


async def test_output_that_the_command_removed_is_none(box: Runtime) -> None:
    done = await box.run(["sh", "-c", "rm /tmp/.vf-run-$OPENCODE_ENV_COMMAND/out; echo said; exit 7"], {})
    assert (done.exit_code, done.stdout) == (7, "")


@pytest.fixture
async def taken_over(api: PrimeApi) -> AsyncIterator[Runtime]:
    """A sandbox whose `sh` is what /tmp/shell says, once it is there: an agent that is root can replace it, and others
    can write to the streams of the shell around their command."""
    async with provision_prime(PrimeConfig(), 60, {"BASH_ENV": "/tmp/shell"}) as started:
        yield started


async def spoil(box: Runtime, first: str) -> None:
    """Have the shell around a command do something first; what looks for its end, or ends it, is sound."""
    sound = f"wait=*|{COMMAND_ID_VARIABLE}=*"
    shell = f'sh() {{ case "${{@: -1}}" in {sound}) ;; *) {first};; esac; command sh "$@"; }}'
    await box.write("/tmp/shell", shell.encode())


@pytest.mark.parametrize(
    "forged",
    [r"ended 0 0 x\n", r"ended 0 0 -1\n", r"running\n", r"lost\n", r"ended 0 2 0\nno", r"\377\n", r"\n", "ended 0 0 0"],
)
async def test_what_is_written_into_the_answer_ends_no_command_otherwise(taken_over: Runtime, forged: str) -> None:
    await spoil(taken_over, f"printf '{forged}'")
    done = await taken_over.run(["sh", "-c", "echo true word; exit 7"], {})
    assert (done.exit_code, done.stdout) == (7, "true word\n")


async def test_an_end_that_was_forged_before_the_shell_was_killed_is_none(taken_over: Runtime) -> None:
    await spoil(taken_over, r"printf 'ended 0 3 0\nwon'; kill -9 $$")
    done = await taken_over.run(["true"], {})
    assert (done.exit_code, done.stdout) == (128 + 9, "")


async def test_a_record_that_somebody_removed_is_no_success(taken_over: Runtime) -> None:
    await spoil(taken_over, "echo")
    done = await taken_over.run(["sh", "-c", "rm -r /tmp/.vf-run-$OPENCODE_ENV_COMMAND"], {})
    assert done.exit_code != 0


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_shell_that_is_flooded_is_killed_with_its_command(taken_over: Runtime, stream: int) -> None:
    flood = f'command sh "$@" & until [ -s /tmp/pid ]; do sleep 0.1; done; head -c 100000000 /dev/zero >&{stream}; wait'
    await spoil(taken_over, flood)
    done = await taken_over.run(["sh", "-c", "echo $$ >/tmp/pid; exec sleep 600"], {})
    assert (done.exit_code, done.stdout) == (128 + 9, "")
    assert "wrote without end" in done.stderr
    await taken_over.write("/tmp/shell", b"")
    assert (await taken_over.run(["sh", "-c", "kill -0 $(cat /tmp/pid)"], {})).exit_code != 0


async def test_an_agent_that_replaced_the_shell_kept_itself_from_being_ended(taken_over: Runtime) -> None:
    fence = ProcessFence(taken_over)
    await fence.mark()
    await taken_over.write("/tmp/shell", b"sh() { echo lost; }")
    with pytest.raises(SandboxError):
        await fence.end()
    assert fence.spoilt


@pytest.mark.parametrize("failure", ["402", "404", "node"])
async def test_what_the_platform_says_as_processes_are_ended_is_no_deed_of_the_agent(
    api: PrimeApi, box: Runtime, short_pauses: None, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    monkeypatch.setattr(runtime_module, "_SILENCE_S", 0.1)
    fence = ProcessFence(box)
    await fence.mark()
    if failure == "node":
        await api.end(api.living[0], "NODE_LOST")
    else:
        api.add(Fault("Start", status=int(failure), times=6))
    with pytest.raises(SandboxError):
        await fence.end()
    assert not fence.spoilt


async def test_what_floods_a_commands_end_is_not_kept(taken_over: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    command = await running(taken_over, "sleep 600")
    await taken_over.write("/tmp/shell", b"sh() { head -c 100000000 /dev/zero; }")
    await cancelled(command)
    assert "could not be ended: a program wrote without end" in caplog.text


async def test_an_answer_that_nobody_understands_is_no_error_of_the_platform(
    taken_over: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "_SILENCE_S", 0.1)
    await taken_over.write("/tmp/shell", b"sh() { echo HTTP 503; }")
    with pytest.raises(SandboxEndedError, match="HTTP 503") as raised:
        await taken_over.run(["true"], {})
    assert type(raised.value) is SandboxEndedError


async def test_a_sandbox_without_a_shell_says_so_at_once(taken_over: Runtime) -> None:
    await taken_over.write("/tmp/shell", b"sh() { return 127; }")
    with pytest.raises(SandboxEndedError, match=r"cannot run sh \(exit code 127\)"):
        await taken_over.run(["true"], {})


async def test_a_command_that_a_replaced_shell_says_is_lost_has_failed(taken_over: Runtime) -> None:
    await taken_over.write("/tmp/shell", b"sh() { echo lost; }")
    assert (await taken_over.run(["true"], {})).exit_code == 128 + 9


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_command_that_the_way_kept_from_starting_is_no_deed_of_an_agent(
    api: PrimeApi, box: Runtime, short_pauses: None, status: int
) -> None:
    api.add(fault := Fault("Start", status=status, times=6))
    with pytest.raises(SandboxGatewayError):
        await box.run(["true"], {})
    assert fault.times == 0 or status == 500, "the SDK gives 500 up at once"


async def test_a_long_command_that_could_not_be_uploaded_is_no_deed_of_an_agent(
    api: PrimeApi, box: Runtime, short_pauses: None
) -> None:
    api.add(Fault("upload", status=503, times=20))
    with pytest.raises(SandboxGatewayError):
        await box.run(["true", "x" * 200_000], {})


async def test_a_sandbox_that_says_at_once_that_a_command_goes_on_is_not_asked_at_once_again(
    api: PrimeApi, taken_over: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "_WAIT_S", pause := 0.3)
    await taken_over.write("/tmp/shell", b"sh() { echo running; }")
    before, started = api.requests["Start"], time.monotonic()
    command = asyncio.ensure_future(taken_over.run(["true"], {}))
    await until(lambda: api.requests["Start"] > before + 4)
    assert time.monotonic() - started > 3 * pause
    await cancelled(command)


async def test_words_of_a_sandbox_are_not_taken_for_the_platforms(box: Runtime) -> None:
    with pytest.raises(SandboxError) as raised:
        await box.read("/tmp/HTTP 503", max_bytes=10)
    assert type(raised.value) is SandboxError


async def test_a_cancelled_command_is_dead_with_all_that_it_started(box: Runtime) -> None:
    child = "setsid sh -c 'echo $$ >/tmp/child; exec sleep 600'"
    command = await running(box, f"{child} & until [ -s /tmp/child ]; do sleep 0.1; done; sleep 601")
    await cancelled(command, partial(is_there, box, "/tmp/child"))
    alive = "for pid in $(cat /tmp/pid /tmp/child); do kill -0 $pid 2>/dev/null && echo $pid; done; true"
    assert (await box.run(["sh", "-c", alive], {})).stdout == ""


@pytest.mark.parametrize(("reason", "error"), [("OOM_KILLED", SandboxMemoryError), ("NODE_LOST", SandboxEndedError)])
async def test_a_sandbox_that_ends_under_a_command_says_why(
    api: PrimeApi, box: Runtime, reason: str, error: type[SandboxError]
) -> None:
    command = await running(box, "sleep 600")
    await api.end(api.living[0], reason)
    with pytest.raises(error, match=reason):
        await command
    with pytest.raises(error):
        await box.write("/tmp/file", b"data")
