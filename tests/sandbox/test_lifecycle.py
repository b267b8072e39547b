"""Starting and ending: what a start needs, and that nothing outlives a sandbox."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rollout_sandbox.compat import starts_processes
from rollout_sandbox.confined import (
    Bind,
    BubblewrapBackend,
    ConfinedRuntime,
    LocalSandboxConfig,
    bubblewrap,
    provision_confined,
    require_bubblewrap,
)
from rollout_sandbox.confined import directory as directories
from rollout_sandbox.confined import sandbox as sandboxes
from rollout_sandbox.confined.sandbox import Sandbox
from rollout_sandbox.conformance.subject import host_pids_of, unused_seconds
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import SubprocessConfig, SubprocessRuntimeInfo

from tests.support.forked import Forked
from tests.support.programs import finished, own_variables, running
from tests.support.waiting import PATIENCE_SECONDS, until, wait_until

from .conftest import PROBES, confined, probe, sandbox_directories, sh


@pytest.fixture
def marker(sandboxes: None) -> str:
    """A number of seconds that no other test sleeps."""
    return unused_seconds()


@contextlib.contextmanager
def host_process(marker: str, *args: str) -> Iterator[Forked]:
    with running(str(PROBES / "host_process.py"), marker, *args) as (process, said):
        assert said.readline() == "ready\n"
        yield process


def wait_until_gone(marker: str) -> None:
    wait_until(lambda: not host_pids_of(marker))


def directories_of(marker: str) -> list[Path]:
    return [path for path in sandbox_directories() if marker.replace(".", "-") in path.name]


async def test_a_stopped_sandbox_leaves_no_process_and_no_directory(marker: str) -> None:
    async with provision_confined(LocalSandboxConfig(), name=marker) as runtime:
        await runtime.run_background(["sh", "-c", f"setsid sleep {marker} & sleep {marker}"], {}, "log")
        await until(lambda: len(host_pids_of(marker)) >= 3)
        assert len(directories_of(marker)) == 1
    assert host_pids_of(marker) == []
    assert directories_of(marker) == []


async def test_one_that_is_stopped_while_it_is_prepared_does_not_start_and_leaves_nothing(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, stopped = Sandbox._prepare, threading.Event()

    def late(sandbox: Sandbox) -> Any:
        stopped.wait(PATIENCE_SECONDS)
        return prepare(sandbox)

    monkeypatch.setattr(Sandbox, "_prepare", late)
    backend = BubblewrapBackend(LocalSandboxConfig(), name=marker)
    starting = asyncio.create_task(backend.start())
    await asyncio.sleep(0)
    await backend.stop()
    stopped.set()
    with pytest.raises(SandboxError, match="was stopped before it had started"):
        await starting
    assert directories_of(marker) == []
    assert backend.sandbox.limits.group is None
    assert backend.sandbox.limits._pool is None or backend.sandbox.limits.user is None


@pytest.mark.usefixtures("sandboxes")
async def test_the_user_of_one_that_ends_late_is_free_once_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "_KILL_TIMEOUT_S", 0.0)
    backend = BubblewrapBackend(LocalSandboxConfig(), name="ends-late")
    await backend.start()
    process = backend.sandbox._process
    assert process is not None
    monkeypatch.setattr(process, "_try_wait", lambda _: (0, 0))
    await backend.stop()
    assert process.returncode is None
    assert backend.sandbox.limits.group is not None
    monkeypatch.undo()
    await until(lambda: backend.sandbox.limits.group is None)
    assert process.returncode is not None


@pytest.mark.usefixtures("sandboxes")
async def test_stopping_is_idempotent_and_a_stopped_sandbox_refuses_work() -> None:
    runtime = BubblewrapBackend(LocalSandboxConfig()).bind()
    with pytest.raises(SandboxError, match="not started"):
        await runtime.run(["true"], {})
    await runtime.backend.stop()
    runtime = BubblewrapBackend(LocalSandboxConfig()).bind()
    await runtime.backend.start()
    await runtime.backend.stop()
    await runtime.backend.stop()
    runtime.backend.cleanup()
    with pytest.raises(SandboxError, match="is gone"):
        await runtime.run(["true"], {})


async def test_a_sandbox_is_a_subprocess_runtime_for_verifiers(runtime: ConfinedRuntime) -> None:
    assert runtime.type == "subprocess"
    assert isinstance(runtime.config, SubprocessConfig)
    assert SubprocessRuntimeInfo.model_validate_json(runtime.info.model_dump_json()) == runtime.info
    assert runtime.info.id == "/tmp/.vf-test"
    assert (await sh(runtime, f"test -d {runtime.info.id} && test -w {runtime.info.id}")).exit_code == 0
    assert runtime.published_port is None
    assert starts_processes(runtime)
    assert runtime.is_local


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03])
async def test_cancelling_a_start_leaves_nothing(marker: str, delay: float) -> None:
    async def hold() -> None:
        async with provision_confined(LocalSandboxConfig(), name=marker):
            await asyncio.sleep(1000)

    task = asyncio.create_task(hold())
    await asyncio.sleep(delay)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_until_gone(directories.ROOT.name + "/" + marker.replace(".", "-"))
    assert directories_of(marker) == []


@pytest.mark.usefixtures("sandboxes")
async def test_what_bubblewrap_refuses_is_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="missing"):
        async with confined(Bind(tmp_path / "missing", "/x")):
            pass


async def test_without_bubblewrap_one_line_names_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    require_bubblewrap.cache_clear()
    with pytest.raises(SandboxError) as caught:
        async with confined():
            pass
    assert "\n" not in str(caught.value)
    for way in ("apt-get install bubblewrap", "--env.agent.runtime.type", "--env.sandbox.confine false"):
        assert way in str(caught.value)


@pytest.mark.usefixtures("sandboxes")
def test_a_bubblewrap_that_may_not_make_namespaces_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    require_bubblewrap.cache_clear()
    with pytest.raises(SandboxError, match=r"No permissions to create a new namespace.*--env\.sandbox\.confine false"):
        require_bubblewrap()


@pytest.mark.usefixtures("sandboxes")
async def test_an_old_bubblewrap_without_disable_userns_confines_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_NO_NESTED_USERS", "--no-such-option")
    require_bubblewrap.cache_clear()
    # In a namespace of its own user's, further ones are refused without bubblewrap's doing.
    async with confined(own_user=False) as runtime:
        result = await probe(runtime, "nested.py")
        assert (result.exit_code, result.stdout) == (0, ""), result
        assert await runtime.alive()


@pytest.fixture(autouse=True)
def _probe_again() -> Iterator[None]:
    yield
    require_bubblewrap.cache_clear()


async def test_killing_the_host_process_ends_the_sandbox_and_the_next_start_sweeps_its_directory(marker: str) -> None:
    with host_process(marker) as process, directories._exclusive(directories.ROOT):  # no neighbour's start sweeps
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until_gone(marker)
        assert len(directories_of(marker)) == 1
    async with confined():
        assert directories_of(marker) == []


def test_a_living_sandbox_of_another_process_is_not_swept(marker: str) -> None:
    with host_process(marker) as process:
        directories.sweep()
        assert len(directories_of(marker)) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait() != 0
    assert host_pids_of(marker) == []
    assert directories_of(marker) == []


@pytest.mark.parametrize("home", [None, "caf\u00e9"])
def test_a_sandbox_starts_without_a_home_and_in_one_whose_name_the_locale_cannot_say(
    marker: str, home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("LC_ALL", "C"), ("PYTHONCOERCECLOCALE", "0"), ("PYTHONUTF8", "0")):
        monkeypatch.setenv(name, value)
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        (tmp_path / home).mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / home))
    with host_process(marker, "exit") as process:
        assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize(
    ("version", "said"), [("0.4.1", r"bubblewrap 0\.4\.1, which is too old.*needs 0\.5 or later"), ("0.5.0", "Unknown")]
)
def test_a_bubblewrap_that_is_too_old_says_so_and_which_works(
    version: str, said: str, sandboxes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    answer = f"[ $1 = --version ] && echo bubblewrap {version} && exit"
    program.write_text(f"#!/bin/sh\n{answer}\necho 'bwrap: Unknown option --clearenv' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(SandboxError, match=said):
        require_bubblewrap.__wrapped__()


def test_an_exit_without_teardown_still_cleans_up(marker: str) -> None:
    with host_process(marker, "exit") as process:
        assert process.wait(PATIENCE_SECONDS) == 0
    assert host_pids_of(marker) == []
    assert directories_of(marker) == []


async def test_a_tree_too_deep_and_locked_for_pythons_rmtree_is_removed(marker: str) -> None:
    async with provision_confined(LocalSandboxConfig(), name=marker) as runtime:
        deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)"
        assert (await runtime.run(["python3", "-c", deep], {})).exit_code == 0
    assert directories_of(marker) == []


def test_a_directory_under_removal_is_not_swept_and_removed_whole_beside_a_sweep(tmp_path: Path) -> None:
    for number in range(20):
        directory = directories.SandboxDirectory(f"removed-{number}", tmp_path)
        for index in range(200):
            (directory.path / "app" / str(index)).touch()
        with ThreadPoolExecutor(2) as pool:
            removing = pool.submit(directory.remove)
            while not removing.done():
                directories.sweep(tmp_path)
                assert not list(tmp_path.glob(".dead-*"))
            removing.result()
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_machine_never_sweeps_what_another_has_in_a_shared_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks are free as seen from here: no lock crosses to the other machine."""
    roots = []
    for boot in ("4f7a11c2-09d1-4c55-8a53-1f6f0d3b2a10", "b81e6d00-77aa-4f0e-9c37-5a2f9e1d4c22"):
        (tmp_path / "boot").write_text(boot)
        monkeypatch.setattr(directories, "_BOOT", tmp_path / "boot")
        roots.append(directories._root_of(tmp_path))
    theirs = directories.SandboxDirectory("theirs", roots[0])
    assert theirs._lock is not None
    os.close(theirs._lock)
    directories.SandboxDirectory("dead", roots[1]).remove()
    monkeypatch.setattr(directories, "_LOCAL", set())
    for _ in range(2):
        directories.sweep(roots[1])
        directories.sweep_former(roots[1])
    assert theirs.path.is_dir()
    monkeypatch.undo()  # a local file system: nobody else is there, and it is this machine's from before
    with monkeypatch.context() as patch:
        patch.setattr(directories, "_is_local", lambda place: True)
        directories.sweep_former(roots[1])
    assert [place.name for place in tmp_path.glob("confined-on-*")] == [roots[1].name]


def test_the_directories_of_this_machine_are_told_by_its_boot() -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot.startswith(directories.ROOT.name.removeprefix("confined-on-"))


def test_two_sweeps_at_once_leave_nothing(tmp_path: Path) -> None:
    for number in range(20):
        dead = tmp_path / f".dead-{number}"
        for index in range(20):
            (dead / str(index) / "deeper").mkdir(parents=True)
        with ThreadPoolExecutor(2) as pool:
            sweeps = [pool.submit(directories.sweep, tmp_path) for _ in range(2)]
            for sweep in sweeps:
                sweep.result()
                assert not dead.exists()


def test_the_directories_are_closed_to_other_users() -> None:
    assert directories.ROOT.stat().st_mode & 0o077 == 0


def test_an_unknown_network_is_refused_when_the_config_is_built() -> None:
    with pytest.raises(ValidationError):
        LocalSandboxConfig(network="open")


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user, which takes root")
@pytest.mark.usefixtures("sandboxes")
def test_a_normal_user_gets_the_same_sandbox() -> None:
    if not os.path.exists(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"):
        pytest.skip("the system's Python is another one, and this one's installation may be closed to other users")
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, 65534, 65534)
        done = finished([sys.executable, str(PROBES / "normal_user.py")], Path("/"), own_variables(HOME=home))
    assert (done.returncode, done.stdout) == (0, "1000 True True\n"), done.stderr
