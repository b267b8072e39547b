"""Locks keep others out, also in the same process, and end with their holder."""

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opencode_rubrics.cache import cache_root, make_once, require_cache
from rollout_sandbox.file_lock import is_locked, locked, locked_async, private_directory, try_lock
from verifiers.v1.errors import SandboxError

from tests.support.child import child

HOLDER = """
import sys, time
from pathlib import Path
from rollout_sandbox.file_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.usefixtures("programs")
def test_a_lock_is_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with child(sys.executable, "-c", HOLDER, path, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert try_lock(path) is None
        holder.send_signal(signal.SIGKILL)
    with locked(path):
        assert try_lock(path) is None
    assert path.stat().st_mode & 0o077 == 0


def test_a_look_at_a_lock_says_whether_it_is_held_and_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)


async def test_waiting_for_a_lock_leaves_the_event_loop_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    order: list[str] = []

    async def wait() -> None:
        async with locked_async(path):
            order.append("waiter")

    async with locked_async(path):
        waiter = asyncio.create_task(wait())
        for _ in range(3):
            await asyncio.sleep(0)
        order.append("holder")
    await waiter
    assert order == ["holder", "waiter"]


async def test_who_gives_up_waiting_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = try_lock(path)
    assert held is not None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), locked_async(path):
            pass
    os.close(held)
    async with asyncio.timeout(30), locked_async(path):
        assert try_lock(path) is None


def test_a_lock_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        try_lock(tmp_path / "gone" / "lock")
    assert private_directory(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_directory_is_made_once_whole_and_again_without_its_marker(tmp_path: Path) -> None:
    directory, made = tmp_path / "cache" / "thing", []

    def fill(staged: Path) -> None:
        assert staged.parent != directory.parent
        made.append(staged)
        (staged / "done").write_text(str(len(made)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: make_once(directory, "done", fill), range(8)))
    assert len(made) == 1
    (directory / "done").unlink()
    (directory / "rest").write_text("")
    make_once(directory, "done", fill)
    assert [path.name for path in directory.iterdir()] == ["done"]
    assert (directory / "done").read_text() == "2"


def test_a_making_that_fails_leaves_nothing_that_looks_made(tmp_path: Path) -> None:
    def fail(staged: Path) -> None:
        (staged / "done").write_text("")
        raise KeyError("no")

    with pytest.raises(KeyError):
        make_once(tmp_path / "thing", "done", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENCODE_ENV_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "own"
    monkeypatch.delenv("OPENCODE_ENV_CACHE")
    assert cache_root() == tmp_path / "xdg" / "opencode-env"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "opencode-env"


def test_a_cache_that_cannot_be_written_is_named_with_what_to_set(tmp_path: Path) -> None:
    require_cache(tmp_path / "new/cache", tmp_path)
    assert list((tmp_path / "new/cache").iterdir()) == []
    with pytest.raises(SandboxError, match=r"cache /proc/\.cache cannot be written \(.+\): set HOME"):
        require_cache(tmp_path, Path("/proc/.cache"))
