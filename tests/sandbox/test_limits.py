"""What a sandbox may use, and that what one agent takes is missing nowhere else."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from rollout_sandbox.confined import ConfinedRuntime, limits
from rollout_sandbox.confined.limits import Hierarchies, host_hierarchies
from rollout_sandbox.conformance.subject import host_pids_of, program
from verifiers.v1.runtimes import ProgramResult

from tests.support.waiting import until

from .conftest import holds, probe, program_of, sh, started

pytestmark = pytest.mark.usefixtures("sandboxes")

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="user ids are given away by root")
SHARING = [pytest.param(True, marks=AS_ROOT, id="own-user"), pytest.param(False, id="shared-user")]


def host_uids(marker: str) -> set[int]:
    return {Path("/proc", str(pid)).stat().st_uid for pid in host_pids_of(marker)}


@AS_ROOT
async def test_each_living_sandbox_has_a_host_user_of_its_own_and_owns_its_files(places: AsyncExitStack) -> None:
    one, two = await started(places), await started(places)
    for number, box in enumerate((one, two)):
        await box.run_background(["sleep", f"734{number}.125"], {}, "log")
    await until(lambda: host_uids("7340.125") and host_uids("7341.125"))
    (first,), (second,) = host_uids("7340.125"), host_uids("7341.125")
    assert len({0, first, second}) == 3
    shown = await sh(one, "id -u; touch x /tmp/x ~/x /logs/x /dev/shm/x; stat -c %u x /app")
    assert shown.stdout.split() == ["1000"] * 3


async def test_a_nested_user_namespace_is_refused(runtime: ConfinedRuntime) -> None:
    assert (await sh(runtime, "unshare --user true")).exit_code != 0


@pytest.mark.parametrize("own_user", SHARING)
async def test_a_fork_bomb_stops_at_its_limit_and_all_others_go_on(places: AsyncExitStack, own_user: bool) -> None:
    if not own_user and os.geteuid() == 0:
        pytest.skip("the kernel never limits the processes of the host's root")
    box = await started(places, own_user=own_user, max_processes=100)
    other = await started(places, own_user=own_user, max_processes=100)
    bomb = await box.run(program("many_processes.py", "400"), {})
    made, problem = bomb.stdout.split(maxsplit=1)
    assert 50 < int(made) < 100
    assert "Resource temporarily unavailable" in problem
    assert (await other.run(program("many_processes.py", "50"), {})).stdout.strip() == "50 none"
    # Process 1 is under no limit, so what the host asks for starts even then.
    assert (await box.run(["true"], {})).exit_code == 0


async def test_no_limit_can_be_raised_from_inside(places: AsyncExitStack) -> None:
    box = await started(places, max_processes=100, max_open_files=200, max_disk="1MiB")
    raised = "import resource as r\nfor k in (r.RLIMIT_NPROC, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE): {}"
    bounds = await box.run(["python3", "-c", raised.format("print(*r.getrlimit(k))")], {})
    assert bounds.stdout.split() == ["100", "100", "200", "200", str(1 << 20), str(1 << 20)]
    refused = await box.run(["python3", "-c", raised.format("r.setrlimit(k, (10**5, 10**7))")], {})
    assert "not allowed to raise maximum limit" in refused.stderr
    assert (await sh(box, "test -e /sys/fs/cgroup")).exit_code == 1


async def test_limits_that_are_switched_off_do_not_hold(places: AsyncExitStack) -> None:
    box = await started(places, max_processes=None, max_open_files=None, max_disk=None, max_memory=None)
    result = await sh(box, "ulimit -f; python3 -c 'x = bytearray(300 << 20)'; echo $?")
    assert result.stdout.split() == ["unlimited", "0"]
    assert (await box.run(program("many_processes.py", "150"), {})).stdout.strip() == "150 none"


async def test_no_command_tells_whether_it_lives(places: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs there can slow one down, keep it from starting, or end it."""
    box = await started(places)

    async def fails(*arguments: object) -> ProgramResult:
        return ProgramResult(-9, "", "")

    monkeypatch.setattr(box, "run", fails)
    assert await box.alive()
    pid = box.backend.sandbox.channel.process_one
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not box.backend.sandbox.is_alive)
    assert not await box.alive()


MEMORY_BOMBS = {
    "one": "python3 -c 'x = bytearray(1 << 30)'",
    "many": "for i in $(seq 12); do python3 -c 'x = bytearray(30 << 20); import time; time.sleep(5)' & done; wait",
}


@pytest.mark.parametrize("groups", [True, False], ids=["limited", "watched"])
@pytest.mark.parametrize("bomb", MEMORY_BOMBS)
async def test_a_memory_bomb_is_killed_and_its_shell_sees_it(
    places: AsyncExitStack, monkeypatch: pytest.MonkeyPatch, bomb: str, groups: bool
) -> None:
    if not groups:  # as on a host where none can be made
        monkeypatch.setattr(limits, "host_hierarchies", lambda: Hierarchies({}))
    box = await started(places, max_memory="256MiB")
    result = await sh(box, f"({MEMORY_BOMBS[bomb]}) & wait $!; echo $?; echo alive")
    assert result.stdout.split()[-1] == "alive"
    assert (await box.limit_kills())["memory"] >= 1
    assert (await box.run(["true"], {})).exit_code == 0


@AS_ROOT
@pytest.mark.parametrize("bomb", ["memfd", "pipes", "sockets"])
async def test_memory_that_no_process_has_mapped_counts_too(places: AsyncExitStack, bomb: str) -> None:
    if "memory" not in host_hierarchies().by_controller:
        pytest.skip("no memory controller here")
    box = await started(places, max_memory="64MiB")
    held = await probe(box, "hold_memory.py", bomb, str(512 << 20))
    assert held.exit_code != 0 or "refused" in held.stdout, held
    assert (await box.run(["true"], {})).exit_code == 0


async def test_a_process_that_wants_to_be_spared_is_killed_at_the_limit_all_the_same(places: AsyncExitStack) -> None:
    box = await started(places, max_memory="128MiB")
    spared = "echo -1000 > /proc/self/oom_score_adj; echo -1000 > /proc/1/oom_score_adj; exec python3 -c"
    result = await sh(box, f"({spared} 'x = bytearray(1 << 30)'); echo $?")
    assert result.stdout.split()[-1] == "137"


@AS_ROOT
async def test_what_a_sandbox_runs_is_ended_first_where_the_machine_has_no_memory_left(places: AsyncExitStack) -> None:
    box = await started(places)
    result = await sh(box, "echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj /proc/1/oom_score_adj")
    assert result.stdout.split() == ["1000", "1000"]


DISK_BOMBS = {
    "files": "i=0; while :; do i=$((i+1)); head -c 1M /dev/zero > /app/$i; done",
    "removed": 'for n in 5 6 7 8 9; do eval "exec $n>/tmp/x; rm /tmp/x; head -c 20M /dev/zero >&$n"; done; sleep 1000',
    "empty": "mkdir d; cd d; i=0; while :; do i=$((i+1)); : > $i; done",
    "shm": "i=0; while :; do i=$((i+1)); head -c 1M /dev/zero > /dev/shm/$i; done",
}


@pytest.mark.parametrize("bomb", DISK_BOMBS)
async def test_what_fills_the_disk_is_ended(places: AsyncExitStack, bomb: str) -> None:
    box = await started(places, max_disk="32MiB")
    result = await sh(box, DISK_BOMBS[bomb])
    assert result.exit_code == -signal.SIGKILL
    assert (await box.limit_kills())["disk"] >= 1
    assert (await sh(box, "rm -rf /app/* /dev/shm/*; echo x > /app/x; cat /app/x")).stdout == "x\n"


async def test_a_command_survives_what_its_child_wrote_and_may_remove_it(places: AsyncExitStack) -> None:
    box = await started(places, max_disk="64MiB")
    script = "timeout 1000 sh -c 'i=0; while :; do i=$((i+1)); head -c 1M /dev/zero > /app/$i; sleep 0.05; done'"
    result = await sh(box, f"{script}; echo $?; sleep 1; rm -r /app/*; sleep 1; echo x > /app/x; cat /app/x")
    assert result.stdout == "137\nx\n"


async def test_a_large_file_is_an_error_at_once(places: AsyncExitStack) -> None:
    box = await started(places, max_disk="32MiB")
    for command in ("truncate -s 1T x", "fallocate -l 1G x", "fallocate -n -l 1G x", "head -c 100M /dev/zero > x"):
        result = await sh(box, f"trap '' XFSZ; {command}; echo $?; stat -c %s x || echo 0; rm -f x")
        code, size = result.stdout.split()
        assert int(code) != 0, command
        assert int(size) <= 32 << 20


@pytest.mark.parametrize("own_user", SHARING)
async def test_descriptors_in_flight_stop_no_sandbox(places: AsyncExitStack, own_user: bool) -> None:
    box, other = await started(places, own_user=own_user), await started(places, own_user=own_user)
    flood = await box.exec(program_of("in_flight.py"), {})
    assert b"Too many references" in await anext(aiter(flood.stdout))
    for sandbox in (box, other):
        await sandbox.write("x", b"1")
        assert await sandbox.read("x") == b"1"
        assert (await sandbox.run(["cat", "x"], {})).stdout == "1"
        assert sandbox.host_url("http://127.0.0.1:9/v1")
    await flood.kill()


@AS_ROOT
async def test_inotify_instances_of_one_sandbox_are_not_missing_in_another(places: AsyncExitStack) -> None:
    box, other = await started(places), await started(places)
    flood = await box.exec(program_of("inotify.py"), {})
    assert b"24" in await anext(aiter(flood.stdout))  # EMFILE
    one = "import ctypes; print(ctypes.CDLL(None).inotify_init1(0) >= 0)"
    assert (await other.run(["python3", "-c", one], {})).stdout == "True\n"
    on_host = subprocess.run([sys.executable, "-c", one], capture_output=True, text=True, check=False)
    assert on_host.stdout == "True\n"
    await flood.kill()


async def test_what_no_namespace_separates_or_few_programs_need_is_refused(runtime: ConfinedRuntime) -> None:
    for call in ("vsock", "alg", "packet", "io_uring", "userfaultfd"):
        assert (await probe(runtime, "odd_calls.py", call)).stdout == "refused\n", call


async def test_ordinary_sockets_work(runtime: ConfinedRuntime) -> None:
    code = "import socket as s\nfor f in (s.AF_UNIX, s.AF_INET, s.AF_INET6, s.AF_NETLINK): s.socket(f, s.SOCK_DGRAM)"
    assert (await runtime.run(["python3", "-c", code], {})).exit_code == 0


async def test_a_live_process_is_over_when_it_ends_whoever_keeps_its_output_open(runtime: ConfinedRuntime) -> None:
    process = await runtime.exec(["sh", "-c", "echo said; sleep 1000 & echo more >&2"], {})
    async with asyncio.timeout(60):
        assert b"".join([chunk async for chunk in process.stdout]) == b"said\n"
        assert b"".join([chunk async for chunk in process.stderr]) == b"more\n"
    assert await process.wait() == 0


async def test_what_a_child_goes_on_writing_is_read_to_a_bound(runtime: ConfinedRuntime) -> None:
    process = await runtime.exec(["sh", "-c", "yes & sleep 0.2"], {})
    await process.wait()
    async with asyncio.timeout(60):
        while [chunk async for chunk in process.stdout]:
            pass


async def test_a_fork_chain_that_wakes_itself_takes_all_with_it_and_is_no_error(runtime: ConfinedRuntime) -> None:
    await runtime.run_background(["sleep", "1000"], {}, "log")
    await runtime.mark_agent_start()
    await runtime.run_background(program_of("chain.py"), {}, "chain")
    await until(partial(holds, runtime, 60))
    began = time.monotonic()
    await runtime.end_agent_processes()
    left = (await sh(runtime, "for s in /proc/[0-9]*/comm; do cat $s; done")).stdout.split()
    assert "python3" not in left
    assert runtime.agent_survived == ("sleep" not in left)
    assert time.monotonic() - began < 60
    assert (await runtime.run(["true"], {})).exit_code == 0


def own_groups() -> list[Path]:
    found = host_hierarchies()
    bases = {*found.by_controller.values(), *found.unified}
    return [group for base in bases for group in base.glob(f"confined-sandbox-*-{os.getpid()}-*")]


@AS_ROOT
async def test_no_control_group_is_left(places: AsyncExitStack) -> None:
    box = await started(places)
    assert own_groups()
    await box.run_background(["sleep", "1000"], {}, "log")
    async with box.others_held():
        pass
    await places.aclose()
    assert own_groups() == []
