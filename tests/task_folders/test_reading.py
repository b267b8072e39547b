"""A folder of task directories is recognised, read whole, and refused where it asks for what there is not."""

import base64
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from opencode_env.taskset import DatasetError, OpenCodeTaskData
from rollout_sandbox.compat import asked_network
from rollout_sandbox.toolbox.files import pack_directory

from tests.task_folders.folders import CONTAINERS, COUNT, FOLDERS, SOLVED, folder_task
from tests.taskset.files import tasks, write_jsonl


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of one task directory, to be changed."""
    return shutil.copytree(COUNT, tmp_path / "tasks" / "count-lines")


def names(packed: str | None) -> list[str]:
    """What a packed directory holds."""
    assert packed is not None
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as archive:
        return archive.getnames()


def test_every_directory_below_the_folder_is_a_task_named_by_its_path() -> None:
    assert [task.data.id for task in tasks(FOLDERS / "tasks")] == SOLVED
    assert [task.data.id for task in tasks(FOLDERS, dataset_subset="containers")] == ["from-dockerfile"]
    nested = [task.data.id for task in tasks(FOLDERS)]
    assert nested == sorted(map(str, nested))
    assert "tasks/count-lines" in nested
    assert folder_task(COUNT).key == "count-lines"


def test_a_task_holds_its_tests_and_files_but_not_its_solution(folder: Path) -> None:
    data = folder_task(folder).data
    again = OpenCodeTaskData.model_validate(json.loads(data.model_dump_json()))
    assert again == data
    assert data.tests is not None
    assert data.folder is not None
    assert names(data.tests.archive) == ["test.sh"]
    assert names(data.folder.files) == ["access.log"]
    assert "awk" not in data.model_dump_json()
    assert data.timeout.agent == 300.0
    assert data.tests.timeout == 60.0
    assert data.info["difficulty"] == "easy"


def test_metadata_filters_as_a_column_does() -> None:
    kept = tasks(FOLDERS / "tasks", difficulty_key="difficulty_score", min_avg_reward=0.55, max_avg_reward=0.85)
    assert [task.data.id for task in kept] == ["merge-tables", "pack-sources"]


def test_the_prompt_is_the_instruction_between_the_users_own(folder: Path) -> None:
    task = folder_task(folder, instruction_prompt="Hi. ", instruction_prompt_post=" Bye.")
    assert str(task.data.prompt).startswith("Hi. The file `access.log`")
    assert str(task.data.prompt).endswith("directory. Bye.")


def test_a_dockerfile_is_an_image_named_by_its_content(tmp_path: Path) -> None:
    folder = shutil.copytree(CONTAINERS / "from-dockerfile", tmp_path / "one")
    first = folder_task(folder).data
    assert str(first.image).startswith("localhost/opencode-task:")
    assert first.workdir == "/srv/site"
    assert first.folder is not None
    assert first.folder.build is not None
    assert first.folder.build.timeout == 300.0
    assert first.folder.files is None
    os.utime(folder / "environment" / "page.txt", (1, 1))
    assert folder_task(folder).data.image == first.image
    (folder / "environment" / "page.txt").write_text("another")
    assert folder_task(folder).data.image != first.image
    (folder / "task.toml").write_text('[environment]\ndocker_image = "docker.io/library/debian:12"\n')
    named = folder_task(folder).data
    assert named.folder is not None
    assert (named.image, named.folder.build) == ("docker.io/library/debian:12", None)


def test_what_a_task_asks_of_its_sandbox_is_in_its_data(folder: Path) -> None:
    (folder / "task.toml").write_text(
        'version = "1.0"\n[agent]\nuser = "dev"\n[environment]\ncpus = 2\nmemory = "512M"\nstorage = "10G"\n'
        'allow_internet = false\nworkdir = "/srv"\n[environment.env]\nA = "${HOME:-b}"\n[environment.healthcheck]\n'
        'command = "true"\n[verifier]\nenvironment_mode = "separate"\n'
    )
    task = folder_task(folder)
    data = task.data
    assert (data.resources.cpu, data.resources.memory, data.resources.disk) == (2, 0.5, 10)
    assert (data.agent_user, data.workdir, task.runtime_env()) == ("dev", "/srv", {"A": "b"})
    assert asked_network(data).network_restricted
    assert data.tests is not None
    assert data.tests.box is not None
    assert data.tests.box.image is None


REFUSED = {
    "[[steps]]\nname = 'one'\n": r"\[\[steps\]\]",
    "[environment]\nos = 'windows'\n": "windows",
    "[environment]\nskills_dir = '/skills'\n": "skills_dir",
    "[[environment.mcp_servers]]\nname = 'x'\n": "mcp_servers",
    "[verifier]\nuser = 'judge'\n": "judge",
    "[[verifier.collect]]\ncommand = 'x'\n": "collect",
    "artifacts = [{ source = '/x', service = 'db' }]\n": "service",
    "[verifier]\nenvironment_mode = 'elsewhere'\n": "elsewhere",
    "[verifier.env]\nKEY = '${OPENAI_API_KEY}'\n": "this machine",
    "[environment.env]\nKEY = '${HOME}'\n": "this machine",
    "[verifier]\ntimeout_sec = -1\n": "timeout_sec",
    "[environment]\nmemory = 'much'\n": "is not a size",
    "version = \n": "cannot be read",
}


@pytest.mark.parametrize(("toml", "reason"), REFUSED.items(), ids=REFUSED.values())
def test_what_cannot_be_honoured_is_refused_by_its_name(folder: Path, toml: str, reason: str) -> None:
    (folder / "task.toml").write_text(toml)
    with pytest.raises(DatasetError, match=f"count-lines.*{reason}"):
        folder_task(folder)


@pytest.mark.parametrize("name", ["environment/docker-compose.yaml", "tests/docker-compose.yaml"])
def test_compose_is_refused_with_a_way_out(folder: Path, name: str) -> None:
    (folder / name).write_text("services: {}\n")
    with pytest.raises(DatasetError, match=r"several containers.*taskset `harbor`"):
        folder_task(folder)


LINKS = ["instruction.md", "task.toml", "tests", "environment", "tests/helper", "environment/data"]


@pytest.mark.parametrize("name", [*LINKS, "environment/Dockerfile"])
def test_a_link_that_leaves_the_task_directory_is_refused(folder: Path, name: str) -> None:
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to("/etc/passwd" if name.endswith((".md", ".toml", "helper", "data", "file")) else "/etc")
    with pytest.raises(DatasetError, match=r"leads out|outside"):
        folder_task(folder)


def test_what_is_missing_is_named(folder: Path) -> None:
    (folder / "tests" / "test.sh").unlink()
    with pytest.raises(DatasetError, match=r"no tests/test\.sh"):
        folder_task(folder)


def test_an_option_that_does_not_apply_is_refused() -> None:
    with pytest.raises(DatasetError, match="no splits"):
        tasks(FOLDERS / "tasks", dataset_split="train")


def test_tests_that_fetch_programs_are_warned_of_where_there_is_no_network(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "tests" / "test.sh").write_text("#!/bin/bash\napt-get install -y curl\n")
    folder_task(folder)
    assert "seems to fetch programs" in caplog.text


def test_a_folder_of_data_files_stays_one(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [{"question": "1 + 1?", "answer": "2", "tests": "a column", "folder": 1}])
    (task,) = tasks(tmp_path)
    assert (task.data.tests, task.data.folder) == (None, None)
    assert task.data.info == {"tests": "a column", "folder": 1}


def test_a_packed_directory_is_plain_and_equal_for_equal_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run").write_text("x")
    (tmp_path / "a" / "run").chmod(0o700)
    (tmp_path / "link").symlink_to("a/run")
    os.link(tmp_path / "a" / "run", tmp_path / "twin")
    first = pack_directory(tmp_path)
    os.utime(tmp_path / "a" / "run", (5, 5))
    assert pack_directory(tmp_path) == first
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(first))) as archive:
        assert {m.name: (m.mode, m.uid, m.issym()) for m in archive} == {
            "a": (0o755, 0, False),
            "a/run": (0o755, 0, False),
            "link": (0o755, 0, True),
            "twin": (0o755, 0, False),
        }
        twin = archive.extractfile("twin")
        assert twin is not None
        assert twin.read() == b"x"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is neither a file nor a directory"):
        pack_directory(tmp_path)
