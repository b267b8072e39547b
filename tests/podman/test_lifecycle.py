"""Starting and ending: what a start needs and says, and that nothing outlives a runtime."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollout_sandbox.compat import supports_users
from rollout_sandbox.confined import Bind
from rollout_sandbox.podman import PodmanBackend, PodmanConfig, PodmanRuntime, is_ours, provision_podman
from rollout_sandbox.podman.container import ContainerOptions, run_arguments
from rollout_sandbox.podman.engine import is_passing
from rollout_sandbox.podman.engine import start_failure as describe
from rollout_sandbox.provisioning import provisioned
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import SubprocessConfig

from tests.support.forked import Forked
from tests.support.programs import running
from tests.support.sizes import size
from tests.support.user_home import podman_containers
from tests.support.waiting import PATIENCE_SECONDS, wait_until

from .conftest import PROBES, assert_nothing_left, container_of, directories, sh

pytestmark = pytest.mark.podman


def made(image: str) -> PodmanRuntime:
    return PodmanBackend(PodmanConfig(image=image)).bind()


def stand_in(directory: Path, patch: pytest.MonkeyPatch, script: str) -> None:
    """Have a shell script of this directory stand in for podman."""
    program = directory / "podman"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    patch.setenv("PATH", str(directory), prepend=":")


async def test_a_container_costs_one_call_of_podman_to_start_and_one_to_remove(
    podman_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, f'echo "$1" >>{tmp_path}/calls\nexec /usr/bin/podman "$@"')
    async with provision_podman(PodmanConfig(image=podman_image)) as box:
        await box.run(["true"], {})
        await box.mark_agent_start()
        box.host_url("http://127.0.0.1:1/")
        await box.end_agent_processes()
        await box.expose(8000)
    assert (tmp_path / "calls").read_text().split() == ["run", "exec", "rm"]


async def test_a_runtime_is_what_verifiers_takes_for_a_container(runtime: PodmanRuntime) -> None:
    assert runtime.type == PodmanConfig.model_fields["type"].default
    assert isinstance(runtime.config, PodmanConfig)
    assert is_ours(runtime.config)
    assert not is_ours(SubprocessConfig())
    assert type(runtime.info).model_validate_json(runtime.info.model_dump_json()) == runtime.info
    assert container_of(runtime) in podman_containers()
    found = subprocess.run(["podman", "inspect", str(runtime.info.id)], check=False, capture_output=True)
    assert found.returncode == 0
    assert runtime.is_local
    assert supports_users(runtime)
    assert runtime.published_port is None


async def test_the_work_directory_is_made_where_the_image_has_none(podman_image: str) -> None:
    async with provision_podman(PodmanConfig(image=podman_image, workdir="/srv/a b/deep")) as box:
        assert (await sh(box, "pwd; touch here; ls")).stdout == "/srv/a b/deep\nhere\n"
    with pytest.raises(SandboxError, match="working directory /proc/1/x cannot be made"):
        async with provision_podman(PodmanConfig(image=podman_image, workdir="/proc/1/x")):
            pass


async def test_limits_and_a_directory_of_the_host_that_is_read_only_reach_the_container(
    podman_image: str, tmp_path: Path
) -> None:
    source = tmp_path / "with, comma"
    source.mkdir()
    (source / "file").write_text("of the host")
    config = PodmanConfig(image=podman_image, cpu=0.5, memory=0.25)
    async with provision_podman(config, [Bind(source, "/shown/here")]) as box:
        asked = ["podman", "inspect", "--format", "{{.HostConfig.NanoCpus}} {{.HostConfig.Memory}}", container_of(box)]
        told = await asyncio.to_thread(subprocess.run, asked, check=True, capture_output=True, text=True)
        assert told.stdout.split() == ["500000000", str(256 << 20)]
        assert (await sh(box, "cat /shown/here/file")).stdout == "of the host"
        assert (await sh(box, "rm -f /shown/here/file; touch /shown/here/new")).exit_code != 0
    assert [path.name for path in source.iterdir()] == ["file"]


async def test_a_start_that_meets_another_is_tried_again(
    podman_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = f'if [ "$1" = run ] && [ ! -e {tmp_path}/met ]; then touch {tmp_path}/met'
    problem = "echo 'Error: rootlessport listen tcp 127.0.0.1:1: bind: address already in use' >&2; exit 126; fi"
    stand_in(tmp_path, monkeypatch, f'{once}\n{problem}\nexec /usr/bin/podman "$@"')
    async with provision_podman(PodmanConfig(image=podman_image)) as box:
        assert await box.alive()
    assert (tmp_path / "met").exists()


@pytest.mark.parametrize("image", ["localhost/no-such-image:1", "registry.invalid/nothing:2", "Not An Image"])
async def test_a_missing_image_says_what_to_change(image: str, podman_image: str) -> None:
    before = directories()
    with pytest.raises(SandboxError, match=r"cannot be pulled.*--env\.agent\.runtime\.image") as caught:
        async with provision_podman(PodmanConfig(image=image)):
            pass
    assert image in str(caught.value)
    assert directories() <= before


@pytest.mark.usefixtures("sandboxes")
async def test_without_podman_one_line_names_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError, match=r"podman is not installed.*apt-get install podman.*--env\.agent\.runtime"):
        async with provision_podman(PodmanConfig(image="x")):
            pass


async def test_what_the_container_itself_lacks_is_said(podman_image: str, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="missing"):
        async with provision_podman(PodmanConfig(image=podman_image), [Bind(tmp_path / "missing", "/x")]):
            pass


def test_what_podman_says_of_old_kernels_is_explained() -> None:
    assert "default_ulimits" in describe("i", 126, "Error: runc: error setting rlimit type 7: operation not permitted")
    assert "runc" in describe("i", 126, "Error: OCI runtime error: crun: unknown version in cgroup")
    assert "no `sleep`" in describe("i", 127, 'Error: runc: exec: "sleep": executable file not found in $PATH')
    assert "podman run --rm i true" in describe("i", 125, "Error: something else")
    assert not is_passing("Error: i: image not known")


def test_options_of_the_user_come_before_the_image(tmp_path: Path) -> None:
    options = ContainerOptions("i", "/app", run_options=("--ulimit=nofile=64:64",), gpu="2")
    words = run_arguments(options, "n", tmp_path)
    assert words[-5:] == ["--ulimit=nofile=64:64", "--entrypoint", "sleep", "i", "infinity"]
    assert [word for word in words if word.startswith("nvidia")] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]


async def test_stopping_is_idempotent_and_a_stopped_runtime_refuses_work(podman_image: str) -> None:
    runtime = made(podman_image)
    with pytest.raises(SandboxError, match="not started"):
        await runtime.run(["true"], {})
    await runtime.backend.stop()
    runtime = made(podman_image)
    async with provisioned(runtime.backend):
        pass
    await runtime.backend.stop()
    runtime.backend.cleanup()
    with pytest.raises(SandboxError, match="is gone"):
        await runtime.run(["true"], {})
    assert_nothing_left(runtime)


@pytest.mark.parametrize("delay", size([0.0, 0.05, 0.15], [0.0, 0.02, 0.05, 0.1, 0.15, 0.25]))
async def test_cancelling_a_start_leaves_nothing(podman_image: str, delay: float) -> None:
    runtime = made(podman_image)

    async def hold() -> None:
        async with provisioned(runtime.backend):
            await asyncio.sleep(1000)

    task = asyncio.create_task(hold())
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_nothing_left(runtime)


async def test_a_container_that_podman_cannot_remove_is_named(
    podman_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = made(podman_image)
    async with provisioned(runtime.backend):
        with monkeypatch.context() as patch:
            stand_in(tmp_path, patch, "echo 'no space left' >&2; exit 1")
            await runtime.backend.teardown()
            assert f"remove it with `podman rm --force --volumes --ignore {container_of(runtime)}`" in caplog.text
            assert "no space left" in caplog.text
        assert container_of(runtime) in podman_containers()
    assert_nothing_left(runtime)


@contextlib.contextmanager
def host_process(*args: str) -> Iterator[tuple[Forked, str]]:
    """A process with a container of its own, and the container's name."""
    with running(str(PROBES / "host_process.py"), *args) as (process, said):
        name = said.readline().strip()
        assert name in podman_containers()
        yield process, name


def test_an_exit_without_teardown_removes_the_container(podman_image: str) -> None:
    with host_process(podman_image, "exit") as (process, name):
        process.send_signal(signal.SIGUSR1)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert name not in podman_containers()


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupt_and_a_second_one_remove_the_container(podman_image: str, signals: int) -> None:
    with host_process(podman_image) as (process, name):
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) != 0
        wait_until(lambda: name not in podman_containers())


def directory_of(name: str) -> list[Path]:
    """What the container of this name has on the host."""
    return list(Path(tempfile.gettempdir()).glob(f"vf-podman-*-{name.removeprefix('vf-')}"))


def test_what_a_killed_process_leaves_is_removed_at_once(podman_image: str) -> None:
    with host_process(podman_image) as (process, name):
        assert directory_of(name)
        os.killpg(process.pid, signal.SIGKILL)
        wait_until(lambda: name not in podman_containers() and not directory_of(name))


def test_a_container_that_podman_makes_after_its_process_was_killed_is_removed(
    podman_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, go, over = (tmp_path / name for name in ("arguments", "go", "over"))
    late = f'if [ "$1" = run ]; then echo "$*" >{arguments}; until [ -e {go} ]; do sleep 0.05; done'
    stand_in(tmp_path, monkeypatch, f'{late}\n/usr/bin/podman "$@"; touch {over}; exit; fi\nexec /usr/bin/podman "$@"')
    with running(str(PROBES / "host_process.py"), podman_image) as (process, _):
        wait_until(lambda: arguments.exists() and arguments.read_text().endswith("\n"))
        process.kill()
    name = re.findall(r"--name (\S+)", arguments.read_text())[0]
    assert directory_of(name)
    go.touch()
    wait_until(over.exists)
    wait_until(lambda: name not in podman_containers() and not directory_of(name))
