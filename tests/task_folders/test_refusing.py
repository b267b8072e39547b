"""Which task directories of a folder are refused: all of them are named at once, or left out when that is asked for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opencode_env.taskset import DatasetError, OpenCodeTaskset, OpenCodeTasksetConfig, sources

from tests.task_folders.folders import CONTAINERS, COUNT, FOLDERS, SOLVED, folder_task
from tests.taskset.files import tasks, write_jsonl

IMAGE = CONTAINERS / "from-dockerfile"
COMPOSE = "services: {db: {image: postgres}}\n"

BROKEN = {
    "steps": ("task.toml", "[[steps]]\nname = 'one'\n", "[[steps]]"),
    "no-toml": ("task.toml", "version = ", "cannot be read"),
    "deep-toml": ("task.toml", f"a = {'[' * 20_000}", "cannot be read"),
    "types": ("task.toml", "[verifier]\ntimeout_sec = 'long'\n", "timeout_sec"),
    "compose": ("environment/docker-compose.yaml", COMPOSE, "several containers"),
    "no-prompt": ("instruction.md", "", "question"),
    "bad-column": ("task.toml", "[metadata]\nsystem_prompt = 7\n", "system_prompt"),
    "bad-workdir": ("task.toml", "[environment]\nworkdir = 'relative'\n", "workdir"),
}
"""What is changed in a sound directory, and what is said of it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of sound task directories and of broken ones."""
    made = shutil.copytree(FOLDERS / "tasks", tmp_path / "tasks")
    for name, (file, text, _) in BROKEN.items():
        shutil.copytree(COUNT, made / name)
        (made / name / file).write_text(text)
    return made


def test_all_that_are_refused_are_named_in_one_error(folder: Path) -> None:
    with pytest.raises(DatasetError) as refusal:
        tasks(folder)
    head, *lines = str(refusal.value).splitlines()
    assert f"{len(BROKEN)} of {len(SOLVED) + len(BROKEN)} task directories" in head
    assert "--env.taskset.skip-unsupported" in head
    assert len(lines) == len(BROKEN)
    for name, (_, _, why) in BROKEN.items():
        (line,) = [line for line in lines if f"/{name}" in line]
        assert why in line


def test_they_are_left_out_when_asked_for_and_named_in_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert [task.data.id for task in tasks(folder, skip_unsupported=True)] == SOLVED
    assert f"{len(BROKEN)} of {len(SOLVED) + len(BROKEN)} task directories are left out" in caplog.text
    assert all(f"/{name}" in caplog.text for name in BROKEN)
    caplog.clear()
    kept = tasks(folder, skip_unsupported=True, difficulty_key="difficulty_score", min_avg_reward=0.55)
    assert {"merge-tables", "pack-sources"} <= {task.data.id for task in kept} < set(SOLVED)
    assert tasks(FOLDERS / "tasks", skip_unsupported=True)


def test_a_folder_of_nothing_but_refused_ones_is_an_error_all_the_same(folder: Path) -> None:
    for name in SOLVED:
        shutil.rmtree(folder / name)
    with pytest.raises(DatasetError, match=rf"{len(BROKEN)} of {len(BROKEN)} task directories"):
        tasks(folder, skip_unsupported=True)


def test_a_mistake_of_the_configuration_is_told_as_one(folder: Path, tmp_path: Path) -> None:
    for name in BROKEN:
        shutil.rmtree(folder / name)
    with pytest.raises(DatasetError, match='question_key "prompt" names no column'):
        tasks(folder, question_key="prompt", skip_unsupported=True)
    rows = write_jsonl(tmp_path / "rows.jsonl", [{"question": "1 + 1?", "answer": "2"}])
    with pytest.raises(DatasetError, match="skip_unsupported applies to folders of task directories"):
        tasks(rows, skip_unsupported=True)


@pytest.mark.usefixtures("programs")
def test_a_program_that_it_ends_shows_the_message_and_no_frames(folder: Path) -> None:
    program = (
        "import sys; from opencode_env.taskset import OpenCodeTaskset, OpenCodeTasksetConfig\n"
        "list(OpenCodeTaskset(OpenCodeTasksetConfig(dataset=sys.argv[1])))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1 + len(BROKEN)


@pytest.mark.parametrize("name", ["docker-compose.yml", "compose.yaml"])
def test_a_compose_file_of_another_name_than_harbors_is_data(tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(IMAGE, tmp_path / "one")
    plain = folder_task(folder).data.image
    (folder / "environment" / name).write_text(COMPOSE)
    assert folder_task(folder).data.image != plain


@pytest.mark.parametrize("line", ["COPY . /srv/site", "COPY docker-compose.yaml /srv/site/", "RUN true"])
def test_harbors_own_file_is_refused_whatever_the_dockerfile_copies(tmp_path: Path, line: str) -> None:
    folder = shutil.copytree(IMAGE, tmp_path / "one")
    (folder / "environment" / "docker-compose.yaml").write_text(COMPOSE)
    dockerfile = folder / "environment" / "Dockerfile"
    dockerfile.write_text(f"{dockerfile.read_text()}\n{line}\n")
    with pytest.raises(DatasetError, match="several containers"):
        folder_task(folder)


def test_a_large_folder_gives_its_first_tasks_before_the_rest_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BROKEN:
        shutil.rmtree(folder / name)
    shutil.copytree(COUNT, folder / "zz-last")
    (folder / "zz-last" / "instruction.md").write_text("")
    monkeypatch.setattr(sources, "AT_ONCE", 2)
    reading = iter(OpenCodeTaskset(OpenCodeTasksetConfig(dataset=str(folder))))
    assert [next(reading).data.id for _ in SOLVED] == SOLVED
    with pytest.raises(DatasetError, match=r"1 of \d+ task directories.*\n.*zz-last"):
        next(reading)
    assert [task.data.id for task in tasks(folder, skip_unsupported=True)] == SOLVED
