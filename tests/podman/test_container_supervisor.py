"""What stands outside a container and reaches into it: it must never touch anything of the host."""

import asyncio
import errno
import os
import platform
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from rollout_sandbox.confined.supervisor import container_supervisor, processes
from rollout_sandbox.conformance.subject import LIST_PROCESSES, runs
from rollout_sandbox.podman import PodmanBackend, PodmanConfig, PodmanRuntime, provision_podman
from rollout_sandbox.podman.container import Container, ContainerOptions
from rollout_sandbox.toolbox.scoring_home import put_own_shell
from verifiers.v1.errors import SandboxError

from tests.support.child import child
from tests.support.waiting import PATIENCE_SECONDS, until

from .conftest import sh
from .probes import syscalls

pytestmark = pytest.mark.podman

_SCORES = "for file in oom_score_adj task/1/oom_score_adj oom_adj task/1/oom_adj; do echo 15 >/proc/1/$file; done"
_FILL_A_FILE = [
    (syscalls.MEMFD_CREATE, syscalls.TEXT, 0),
    (syscalls.FALLOCATE, 3, 0, 0, 1 << 40),
    (syscalls.PAUSE,),
]
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="its programs are x86-64's")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="keeps the kernel from a process, which takes root here")


async def install(runtime: PodmanRuntime, *calls: tuple[int, ...]) -> None:
    """Put a program of these system calls into the container."""
    await runtime.write("/tmp/program", syscalls.program(*calls))
    assert (await sh(runtime, "chmod 755 /tmp/program")).exit_code == 0


async def assert_alive(runtime: PodmanRuntime) -> None:
    assert (await sh(runtime, "echo here")).stdout == "here\n"


@on_x86
async def test_root_inside_ends_process_1_by_no_signal_and_by_no_tracer(runtime: PodmanRuntime) -> None:
    await sh(runtime, "for number in $(seq 1 64); do kill -$number 1; done")
    await install(runtime, (syscalls.PTRACE, syscalls.SEIZE, 1, 0, syscalls.EXIT_KILL))
    assert (await runtime.run(["/tmp/program"], {})).exit_code == errno.EPERM
    await assert_alive(runtime)


@as_root
async def test_root_inside_cannot_choose_process_1_for_the_end_of_memory(podman_image: str) -> None:
    async with provision_podman(PodmanConfig(image=podman_image, memory=0.1)) as box:
        await sh(box, _SCORES)
        assert int(Path(f"/proc/{box.backend.container.pid}/oom_score_adj").read_text()) <= 0
        filled = await box.run(["python3", "-c", "x = bytearray(b'x') * (1 << 30)"], {})
        assert filled.exit_code == 128 + signal.SIGKILL
        await assert_alive(box)


@as_root
@on_x86
async def test_a_small_program_that_fills_memory_is_ended_before_process_1(podman_image: str) -> None:
    async with provision_podman(PodmanConfig(image=podman_image, memory=0.1)) as box:
        await install(box, *_FILL_A_FILE)
        filled = await box.with_user("1000").run(["/tmp/program"], {})
        assert filled.exit_code == 128 + signal.SIGKILL
        await assert_alive(box)


@pytest.mark.parametrize(
    "odd",
    [
        "rm $file; mkfifo $file",
        "rm $file; ln -s /tmp/fifo $file; [ -p /tmp/fifo ] || mkfifo /tmp/fifo",
        "rm $file; ln -s /dev/zero $file",
        "truncate -s 1T $file",
        "rm $file; mkdir $file",
        "rm -f $file",
    ],
)
async def test_no_command_waits_for_what_stands_for_the_accounts(podman_image: str, odd: str) -> None:
    async with provision_podman(PodmanConfig(image=podman_image)) as box:
        await sh(box, f"for file in /etc/passwd /etc/group; do {odd}; done")
        ended = asyncio.create_task(box.run(["true"], {}))
        await asyncio.wait([ended], timeout=PATIENCE_SECONDS)
        assert ended.done()
        ended.result()
        await box.mark_agent_start()
        await sh(box, f"for file in /etc/passwd /etc/group; do rm -rf $file; {odd}; done")
        await box.end_agent_processes()
        assert await put_own_shell(box) or shutil.which("bash-static") is None


async def test_what_agents_orphan_fork_and_hide_is_ended_and_the_host_keeps_its_own(runtime: PodmanRuntime) -> None:
    with child("sleep", "2101") as own:
        await runtime.run_background(["sleep", "2100"], {}, "log")
        await until(partial(runs, runtime, "sleep 2100"))
        service = "until [ -e /tmp/go ]; do sleep 0.05; done; sleep 2105; wait"
        await runtime.run_background(["sh", "-c", service], {}, "log")
        await until(partial(runs, runtime, "sh -c until"))
        await runtime.mark_agent_start()
        await sh(runtime, "touch /tmp/go")
        await until(partial(runs, runtime, "sleep 2105"))
        await sh(runtime, "(setsid env -i sleep 2102 &); printf 'sleep 0.01\\nsetsid sh /tmp/chain &\\n' >/tmp/chain")
        for _ in range(5):
            await runtime.run_background(["sh", "/tmp/chain"], {}, "log")
        await runtime.end_agent_processes()
        assert not await runs(runtime, "sh /tmp/chain")
        assert not await runs(runtime, "sleep 2102")
        assert not await runs(runtime, "sleep 2105"), "what a service starts after the mark can be the agent's doing"
        assert await runs(runtime, "sleep 2100")
        assert own.poll() is None


async def test_a_replaced_shell_changes_nothing_about_the_end(runtime: PodmanRuntime) -> None:
    """In verifiers' own containers the end is the image's `sh`, which an agent that is root can replace."""
    await runtime.mark_agent_start()
    await runtime.run_background(["sleep", "2103"], {}, "log")
    await until(partial(runs, runtime, "sleep 2103"))
    await runtime.run(["python3", "-c", "import os; os.remove('/bin/sh'); os.symlink('/bin/true', '/bin/sh')"], {})
    await runtime.end_agent_processes()
    listed = await runtime.run(["grep", "-lr", "--include=cmdline", "--exclude-dir=task", "2103", "/proc"], {})
    assert len(listed.stdout.split()) <= 2, listed  # grep itself, also as /proc/self


@pytest.mark.usefixtures("programs")
def test_a_process_in_this_machines_own_control_group_is_refused() -> None:
    with child(sys.executable, "-c", "import time; time.sleep(1000)") as process:
        with pytest.raises(container_supervisor.CannotGuard, match="control group"):
            container_supervisor._container_cgroup(process.pid)
        with pytest.raises(container_supervisor.CannotGuard, match="pid namespace"):
            container_supervisor._join(process.pid)


@pytest.mark.usefixtures("programs")
def test_a_process_that_took_the_number_of_one_that_ended_gets_no_signal() -> None:
    with child("sleep", "1000") as process:
        found = processes.process_of(process.pid)
        assert found is not None
        other = processes.Process(found.pid, found.parent, found.session, found.started - 1, found.alive)
        guard = object.__new__(container_supervisor.ContainerSupervisor)
        guard._signal_each({process.pid: other}, [process.pid], signal.SIGKILL)
        guard._signal_each({process.pid: found}, [process.pid], signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


@pytest.mark.parametrize(("option", "said"), [("--pid=host", "pid namespace"), ("--privileged", "")])
async def test_a_container_that_shares_our_processes_is_refused(podman_image: str, option: str, said: str) -> None:
    container = Container(ContainerOptions(podman_image, "/app", run_options=(option,)))
    try:
        if said:
            with pytest.raises(SandboxError, match=said):
                await container.start()
        else:
            await container.start()
            assert container.lives
    finally:
        container.close_channel()
        await asyncio.to_thread(container.remove)


@pytest.mark.skipif(os.geteuid() != 0, reason="maps users, which takes root here")
async def test_a_container_with_users_of_its_own_is_guarded_too(podman_image: str) -> None:
    """As rootless podman's: the supervisor has to join its user namespace first."""
    container = Container(ContainerOptions(podman_image, "/app/new", run_options=("--uidmap=0:100000:65536",)))
    backend = PodmanBackend(PodmanConfig(image=podman_image))
    backend.container = container
    try:
        await container.start()
        (made,) = (await container.channel.request("socket")).fds
        os.close(made)
        box = backend.bind()
        assert (await box.run(["stat", "-c", "%u", "/app/new"], {})).stdout == "0\n"
        await container.channel.request("mark")
        await box.run_background(["setpriv", "--reuid=1000", "--clear-groups", "sleep", "2104"], {}, "/tmp/log")
        await until(lambda: shows(box, "2104"))
        await container.channel.request("purge")
        assert not await shows(box, "2104")
    finally:
        container.close_channel()
        await asyncio.to_thread(container.remove)


async def shows(box: PodmanRuntime, number: str) -> bool:
    """Whether a `sleep` of this many seconds runs in the container."""
    listed = await box.run(["sh", "-c", LIST_PROCESSES], {})
    return f"sleep {number}" in [line.strip() for line in listed.stdout.splitlines()]
