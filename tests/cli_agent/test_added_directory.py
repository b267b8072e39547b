"""A directory that unconfined rollouts add goes with the last of them, and only then."""

import os
from pathlib import Path

import pytest
from opencode_env.cli_agent import local_runtime
from opencode_env.cli_agent.local_runtime import AddedDirectory


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_runtime, "_LOCKS", tmp_path / "locks")


def test_the_last_user_removes_what_the_first_one_added(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep"
    first = AddedDirectory(str(path))
    path.mkdir(parents=True)
    second = AddedDirectory(str(path))
    first.release()
    assert path.is_dir()
    second.release()
    assert not (tmp_path / "new").exists()
    second.release()


def test_a_directory_that_was_there_before_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    AddedDirectory(str(kept)).release()
    assert kept.is_dir()


def test_a_link_that_an_agent_put_in_its_place_goes_and_its_target_stays(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    added = AddedDirectory(str(tmp_path / "new"))
    (tmp_path / "new").symlink_to(target)
    added.release()
    assert not (tmp_path / "new").is_symlink()
    assert target.is_dir()


def test_what_a_killed_rollout_added_goes_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "new"
    killed = AddedDirectory(str(path))
    path.mkdir()
    assert killed._fd is not None
    os.close(killed._fd)
    AddedDirectory(str(path)).release()
    assert not path.exists()
