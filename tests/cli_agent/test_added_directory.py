"""A directory that unconfined rollouts add goes with the last of them, and only then."""

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent import sandboxes
from opencode_env.cli_agent.sandboxes import UnconfinedBackend


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the rewards are here."""
    monkeypatch.setattr(sandboxes, "_REWARDS", str(tmp_path / "new" / "deep"))
    return tmp_path / "new"


async def started() -> UnconfinedBackend:
    backend = UnconfinedBackend("/nowhere")
    await backend.start()
    return backend


async def test_the_last_user_removes_what_the_first_one_added(place: Path) -> None:
    first = await started()
    (place / "deep").mkdir(parents=True)
    second = await started()
    await first.stop()
    assert (place / "deep").is_dir()
    await second.stop()
    assert not place.exists()
    second.cleanup()


async def test_a_directory_that_was_there_before_stays(place: Path) -> None:
    (place / "deep").mkdir(parents=True)
    await (await started()).stop()
    assert (place / "deep").is_dir()


async def test_a_link_that_an_agent_put_in_its_place_goes_and_its_target_stays(place: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    backend = await started()
    place.symlink_to(tmp_path / "target")
    await backend.stop()
    assert not place.is_symlink()
    assert (tmp_path / "target").is_dir()


async def test_a_rollout_that_starts_while_another_removes_it_adds_it_anew(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing, go_on = threading.Event(), threading.Event()
    remove = shutil.rmtree

    def slowly(path: Path, *options: Any, **named: Any) -> None:
        if path == place:
            removing.set()
            assert go_on.wait(60)
        remove(path, *options, **named)

    first = await started()
    (place / "deep").mkdir(parents=True)
    monkeypatch.setattr(shutil, "rmtree", slowly)
    ending = asyncio.create_task(first.stop())
    assert await asyncio.to_thread(removing.wait, 60)
    starting = asyncio.create_task(started())
    done, _ = await asyncio.wait({starting}, timeout=0.5)
    go_on.set()
    await ending
    second = await starting
    assert not done
    (place / "deep").mkdir(parents=True)
    await second.stop()
    assert not place.exists()
