"""What the kernel counts for the whole machine, or for nobody: one sandbox takes it from no other."""

import os
import signal
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from rollout_sandbox.confined import ConfinedRuntime
from rollout_sandbox.confined.limits import host_hierarchies

from tests.support.waiting import until

from .conftest import probe, program_of, sh, started

pytestmark = pytest.mark.usefixtures("sandboxes")

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change a mount, or ask what is mapped")

TERMINALS = """
import os
held = []
try:
    while len(held) < 4000: held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError as error: print(len(held), error.errno, flush=True)
import time; time.sleep(1000)
"""


@AS_ROOT
async def test_terminals_of_one_sandbox_are_not_missing_in_another(places: AsyncExitStack) -> None:
    box, other = await started(places), await started(places)
    flood = await box.exec(["python3", "-c", TERMINALS], {})
    held, error = (await anext(aiter(flood.stdout))).split()
    assert (int(held), error) == (32, b"28")  # ENOSPC
    spawn = "import pty, sys; sys.exit(pty.spawn(['tty']))"
    assert (await other.run(["python3", "-c", spawn], {})).stdout.strip() == "/dev/pts/0"
    await flood.kill()


ODD = {"perf_event_open": (298, 241), "bpf": (321, 280), "io_setup": (206, 0)}


async def test_calls_that_count_for_the_machine_or_attack_kernels_are_not_there(runtime: ConfinedRuntime) -> None:
    for call, numbers in ODD.items():
        called = f"c.syscall({numbers[os.uname().machine == 'aarch64']}, 0), ctypes.get_errno()"
        code = f"import ctypes; c = ctypes.CDLL(None, use_errno=True); print({called})"
        assert (await runtime.run(["python3", "-c", code], {})).stdout == "-1 38\n", call


@AS_ROOT
@pytest.mark.parametrize(("kind", "most"), [("tcp", 160 << 20), ("udp", 32 << 20)])
async def test_buffers_of_network_sockets_are_bounded(places: AsyncExitStack, kind: str, most: int) -> None:
    if (memory := host_hierarchies().by_controller.get("memory")) is None:
        pytest.skip("no memory controller of the first version here")
    if not (memory / "memory.kmem.tcp.limit_in_bytes").exists():
        pytest.skip("this kernel does not count what sockets hold")
    box = await started(places, max_memory="256MiB")
    before = _held_by_sockets(kind)
    flood = await box.exec(program_of("hold_sockets.py", kind, str(400 << 20)), {})
    assert (await anext(aiter(flood.stdout))).startswith(b"held")
    assert _held_by_sockets(kind) - before < most
    await flood.kill()


def _held_by_sockets(kind: str) -> int:
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        name, *words = line.split()
        if name == f"{kind.upper()}:":
            return int(words[words.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE")
    raise AssertionError(kind)


LEFT = """
import ctypes
largest = bytearray(16 << 20)  # out of memory, the kernel ends the largest process: not the service
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for _ in range(40):
    segment = libc.shmget(0, 8 << 20, 0o1600)
    if segment < 0: break
    address = libc.shmat(segment, None, 0)
    ctypes.memset(address, 1, 8 << 20)
    libc.shmdt(ctypes.c_void_p(address))
"""
MESSAGES = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.msgget(0, 0o1600)
assert libc.msgsnd(queue, ctypes.create_string_buffer(b"\\1" + bytes(4000)), 4000, 0) == 0
"""
KEPT = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
libc.shmat(libc.shmget(0, 4096, 0o1600), None, 0)
print("attached", flush=True)
time.sleep(1000)
"""


async def test_shared_memory_that_outlives_the_agent_leaves_scoring_its_memory(places: AsyncExitStack) -> None:
    box = await started(places, max_memory="128MiB")
    service = await box.exec(["python3", "-c", KEPT], {})
    await anext(aiter(service.stdout))
    await box.mark_agent_start()
    await box.run(["python3", "-c", LEFT], {})
    await box.run(["python3", "-c", MESSAGES], {})
    await box.end_agent_processes()
    listed = await sh(box, "wc -l < /proc/sysvipc/shm; wc -l < /proc/sysvipc/msg")
    assert listed.stdout.split() == ["2", "1"]  # the head of each table, and what a service is attached to
    scoring = await box.run(["python3", "-c", "x = bytearray(64 << 20); print('scored')"], {})
    assert scoring.stdout == "scored\n", scoring
    await service.kill()


@AS_ROOT
@pytest.mark.parametrize("holder", ["mapped", "thread", "ended"])
async def test_removed_files_count_wherever_they_are_held(places: AsyncExitStack, holder: str) -> None:
    box = await started(places, max_disk="64MiB")
    result = await probe(box, "removed_files.py", holder)
    assert result.exit_code == -signal.SIGKILL
    assert (await box.limit_kills())["disk"] >= 1
    assert (await sh(box, "echo x > /app/x; cat /app/x")).stdout == "x\n"


async def test_a_slow_look_does_not_end_the_watch(places: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def slow(*arguments: object, **options: object) -> None:
        nonlocal looks
        looks += 1
        raise subprocess.TimeoutExpired("du", 60)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", slow)
        box = await started(places, max_disk="32MiB")
        await sh(box, "head -c 20M /dev/zero > /app/x")
        await until(lambda: looks > 0)
    result = await sh(box, "i=0; while :; do i=$((i+1)); head -c 1M /dev/zero > /app/$i; done")
    assert result.exit_code == -signal.SIGKILL
