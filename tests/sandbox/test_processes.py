"""Commands: what they report, and that ending them ends all of them."""

import asyncio
import contextlib
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from opencode_env.cli_agent.sandboxes import provision_local
from rollout_sandbox.confined import ConfinedRuntime, LocalSandboxConfig
from rollout_sandbox.confined.process import LIMIT_BYTES
from rollout_sandbox.conformance.subject import host_pids_of
from verifiers.v1.errors import SandboxError

from tests.support.machine import assert_no_longer
from tests.support.waiting import PATIENCE_SECONDS, until

from .conftest import holds, probe, sh

FREEZER = Path("/sys/fs/cgroup/freezer")
"""Holds a process still as a call does that the kernel does not break off."""


async def names(runtime: ConfinedRuntime) -> list[str]:
    """Return what runs in the sandbox besides process 1 and the command that asks."""
    each = 'for p in /proc/[0-9]*; do echo "${p#/proc/} $(cat $p/comm)"; done 2>/dev/null'
    *lines, shell = (await sh(runtime, f"{each}; echo $$")).stdout.splitlines()
    rows = [line.split(maxsplit=1) for line in lines if len(line.split()) == 2]
    return [name for pid, name in rows if pid not in ("1", shell) and name not in ("sh", "cat")]


async def running(runtime: ConfinedRuntime, *expected: str) -> None:
    """Return once exactly these run, as `names` tells."""

    async def as_expected() -> bool:
        return sorted(await names(runtime)) == sorted(expected)

    await until(as_expected)


async def test_a_command_that_cannot_run_or_is_killed_has_the_expected_exit_code(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "printf '\\0\\1' > garbage; chmod +x garbage")
    for argv, code, message in (
        (["no-such-program"], 127, "no-such-program: command not found"),
        (["/no/such/program"], 127, "No such file or directory"),
        (["/etc/passwd"], 126, "Permission denied"),
        (["/tmp"], 126, "Permission denied"),
        (["./garbage"], 126, "Exec format error"),
        (["sh", "-c", "kill -9 $$"], -signal.SIGKILL, ""),
        (["sh", "-c", "kill -TERM $$"], -signal.SIGTERM, ""),
    ):
        result = await runtime.run(argv, {})
        assert (result.exit_code, message in result.stderr) == (code, True), argv


async def test_the_programs_path_is_the_calls_own(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "mkdir bin; printf '#!/bin/sh\\necho mine' > bin/tool; chmod +x bin/tool")
    assert (await runtime.run(["tool"], {"PATH": "/app/bin:/usr/bin:/bin"})).stdout == "mine\n"


async def test_output_of_any_length_is_kept_in_bounded_memory_and_the_gap_is_named(runtime: ConfinedRuntime) -> None:
    result = await sh(runtime, "echo first; head -c 200M /dev/zero | tr '\\0' x; echo; echo last")
    assert len(result.stdout) <= LIMIT_BYTES + 100
    assert result.stdout.startswith("first\nxxx")
    assert result.stdout.endswith("xxx\nlast\n")
    assert "bytes left out" in result.stdout


async def test_orphans_are_reaped(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "for i in 1 2 3 4 5; do (sleep 0.05 &) ; done")
    await running(runtime)


async def test_ending_the_agent_reaches_a_bare_daemon_and_spares_a_server_from_before(runtime: ConfinedRuntime) -> None:
    await runtime.run_background(["sh", "-c", "sleep 1000 & wait"], {}, "log")
    await running(runtime, "sleep")
    await runtime.mark_agent_start()
    await probe(runtime, "daemon.py", "bare")
    await probe(runtime, "daemon.py")
    await running(runtime, "python3", "sleep", "sleep")
    await runtime.end_agent_processes()
    assert await names(runtime) == ["sleep"]
    assert (await sh(runtime, "cat /proc/[0-9]*/stat | grep -c ' T '")).stdout == "0\n"


async def test_a_child_that_a_spared_server_starts_later_is_spared(runtime: ConfinedRuntime) -> None:
    server = "while ! test -e go; do sleep 0.01; done; sleep 1000 & touch started; wait"
    await runtime.run_background(["sh", "-c", server], {}, "log")
    await runtime.mark_agent_start()
    await sh(runtime, "touch go")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await sh(runtime, "while ! test -e started; do sleep 0.01; done")
    await runtime.end_agent_processes()
    await running(runtime, "sleep")


async def test_ending_the_agent_outruns_a_fork_bomb(runtime: ConfinedRuntime) -> None:
    await runtime.run_background(["sleep", "1000"], {}, "log")
    await runtime.mark_agent_start()
    await probe(runtime, "fork_bomb.py")
    await until(partial(holds, runtime, 190))  # about as many as the bomb wants
    start = time.monotonic()
    await runtime.end_agent_processes()
    taken = time.monotonic() - start
    assert await names(runtime) == ["sleep"]
    assert_no_longer(taken, 10)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not FREEZER.is_dir(), reason="needs root and the freezer of cgroup version 1")
@pytest.mark.parametrize("all_of_it", [False, True])
async def test_a_killed_process_in_a_call_that_goes_on_is_no_failure(runtime: ConfinedRuntime, all_of_it: bool) -> None:
    await runtime.mark_agent_start()
    await runtime.run_background(["sleep", "54321.5"], {}, "log")
    await until(lambda: len(host_pids_of("sleep\x0054321.5")) == 1)
    group = FREEZER / f"call-that-goes-on-{os.getpid()}"
    group.mkdir()
    try:
        # As after `sync` on a slow disk: killed, and not gone before the kernel is done.
        (group / "cgroup.procs").write_text(str(host_pids_of("sleep\x0054321.5")[0]))
        (group / "freezer.state").write_text("FROZEN")
        if all_of_it:
            await runtime.backend.commands.end("end_everything")
        else:
            await runtime.end_agent_processes()
        assert len(host_pids_of("sleep\x0054321.5")) == 1
        assert (await sh(runtime, "echo scored")).stdout == "scored\n"
    finally:
        (group / "freezer.state").write_text("THAWED")
        await until(lambda: not host_pids_of("sleep\x0054321.5"))
        await until(lambda: _is_removed(group))


def _is_removed(group: Path) -> bool:
    """Remove a control group, which the last of its processes keeps a moment longer than its command line."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


async def test_ending_the_agent_ends_a_run_that_is_still_awaited(runtime: ConfinedRuntime) -> None:
    await runtime.mark_agent_start()
    task = asyncio.create_task(runtime.run(["sleep", "1000"], {}))
    await running(runtime, "sleep")
    await runtime.end_agent_processes()
    assert (await task).exit_code == -signal.SIGKILL


async def test_a_live_process_answers_over_its_pipes(runtime: ConfinedRuntime) -> None:
    process = await runtime.exec(["sh", "-c", 'while read line; do echo e >&2; echo "got $line"; done'], {})
    assert await process.poll() is None
    stdout = aiter(process.stdout)
    for word in ("one", "two"):
        await process.write(f"{word}\n".encode())
        assert await anext(stdout) == f"got {word}\n".encode()
    await process.terminate()
    assert await process.wait() == -signal.SIGTERM
    assert await process.poll() == -signal.SIGTERM
    assert b"".join([chunk async for chunk in process.stderr]) == b"e\ne\n"
    assert [chunk async for chunk in stdout] == []
    with pytest.raises(BrokenPipeError):
        await process.write(b"x")


async def test_a_large_write_waits_for_a_slow_reader(runtime: ConfinedRuntime) -> None:
    process = await runtime.exec(["sh", "-c", "sleep 0.2; head -c 3000000 | wc -c"], {})
    await process.write(b"x" * 3_000_000)
    assert await process.wait() == 0
    assert b"".join([chunk async for chunk in process.stdout]) == b"3000000\n"


async def test_a_planted_symlink_does_not_redirect_a_log(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "ln -s /logs/victim log")
    await runtime.run_background(["echo", "hello"], {}, "log")

    async def logged() -> bool:
        return (await sh(runtime, "cat log; ls -A /logs")).stdout == "hello\n"

    await until(logged)


@pytest.mark.parametrize("bubblewrap", [False, True])
async def test_a_sandbox_killed_from_outside_is_an_error_and_not_a_result(
    runtime: ConfinedRuntime, bubblewrap: bool
) -> None:
    task = asyncio.create_task(runtime.run(["sleep", "1000"], {}))
    process = await runtime.exec(["cat"], {})
    await running(runtime, "sleep")
    os.kill(runtime.backend.sandbox.pid if bubblewrap else runtime.backend.sandbox.channel.process_one, signal.SIGKILL)
    with pytest.raises(SandboxError, match="sandbox test is gone"):
        await task
    with pytest.raises(SandboxError, match="is gone"):
        await process.wait()
    for attempt in (runtime.run(["true"], {}), runtime.read("x"), runtime.write("x", b""), runtime.mark_agent_start()):
        with pytest.raises(SandboxError, match="is gone"):
            await attempt
    with pytest.raises(SandboxError):
        await runtime.end_agent_processes()
    with pytest.raises(SandboxError):
        runtime.host_url("http://127.0.0.1:9/v1")
    assert not await runtime.alive()


async def test_a_view_with_an_environment_shares_the_sandbox(runtime: ConfinedRuntime) -> None:
    view = runtime.with_env({"A": "1"})
    assert (await view.run(["sh", "-c", "echo $A"], {})).stdout == "1\n"
    assert (await sh(runtime, "echo $A")).stdout == "\n"


async def test_without_confinement_by_explicit_choice_it_is_a_plain_subprocess(tmp_path: Path) -> None:
    async with provision_local(LocalSandboxConfig(confine=False), (), {}, "/app") as plain:
        assert not isinstance(plain, ConfinedRuntime)
        assert (await plain.run(["test", "-d", str(tmp_path)], {})).exit_code == 0
