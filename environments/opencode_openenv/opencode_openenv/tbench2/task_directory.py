"""Finds a task directory by its name or path, and reads it; the benchmark's are downloaded once per machine.

Invariant: nothing outside of the tasks' directory is read, whatever a caller or a link says. What is unpacked is what
the checksum names, and it is complete: several processes that want it at once get the same directory, and none a part
of one.
"""

import hashlib
import http.client
import lzma
import re
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from opencode_env.taskset import OpenCodeTask, OpenCodeTasksetConfig
from opencode_env.taskset.errors import nearest_name
from opencode_env.taskset.folders.declaration import CONFIG_FILE
from opencode_env.taskset.folders.reading import read_folder, task_directories
from opencode_env.taskset.mapping import RowMapper
from rollout_sandbox.file_lock import locked

from opencode_openenv.tbench2.settings import Settings

_CHECKSUM = re.compile(r"(?P<url>.+)#sha256=(?P<digest>[0-9a-f]{64})")
MAX_DOWNLOAD_BYTES = 2 << 30
MAX_UNPACKED_BYTES = 8 << 30


def find_task(settings: Settings, task_id: object, task_path: object) -> Path:
    """The directory of a task (blocking: it may download).

    Raises:
        ValueError: there is no such task, or the path leaves the tasks' directory.
    """
    root = settings.tasks_dir or downloaded_benchmark(settings.repo_url, settings.cache_dir)
    if not root.is_dir():
        raise ValueError(f"tasks_dir {str(root)!r} is not a directory: set TB2_TASKS_DIR to the folder of the tasks")
    if not task_id and not task_path:
        raise ValueError(f"reset needs a task_id or a task_path; {nearest_name('', _names(root))}")
    given, name = ("task_path", task_path) if task_path else ("task_id", task_id)
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"{given} is {name!r}, which names no directory")
    wanted = Path(name)
    folder = root / wanted
    if not folder.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{given} {str(wanted)!r} leads out of the tasks' directory, which is {str(root)!r}")
    if not (folder / CONFIG_FILE).is_file():
        raise ValueError(
            f"there is no task {str(wanted)!r} in {str(root)!r}; {nearest_name(wanted.name, _names(root))}"
        )
    return folder


def read_task(folder: Path) -> OpenCodeTask:
    """The task of a directory.

    Raises:
        DatasetError: it cannot be honoured here.
    """
    config = OpenCodeTasksetConfig(dataset=str(folder))
    return OpenCodeTask(RowMapper(config).task_data(read_folder(folder, folder, 1)), config.task)


def _names(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in task_directories(root)]


def downloaded_benchmark(repo_url: str | None, cache: Path) -> Path:
    """The directory of the unpacked archive (blocking).

    Raises:
        ValueError: no archive is named, or none with its checksum, or what came is another one.
    """
    if repo_url is None:
        raise ValueError(
            "there are no tasks: set TB2_TASKS_DIR to a checkout of Terminal-Bench 2, or TB2_REPO_URL to the URL of a "
            "zip archive of one commit with its checksum, as https://…/COMMIT.zip#sha256=HEX"
        )
    found = _CHECKSUM.fullmatch(repo_url)
    if found is None:
        raise ValueError(
            f"TB2_REPO_URL {repo_url!r} names no checksum, and what it serves may change: append #sha256=HEX"
        )
    made = cache / found["digest"]
    if not made.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f".{found['digest']}.lock"):
            if not made.is_dir():
                for left in cache.glob(f".{found['digest']}-*"):  # by a process that was killed
                    shutil.rmtree(left)
                _make(found["url"], found["digest"], made)
    entries = [path for path in made.iterdir() if path.is_dir()]
    return entries[0] if len(entries) == 1 else made


def _make(url: str, digest: str, made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=f".{digest}-") as scratch:
        archive = Path(scratch, "archive.zip")
        try:
            with urllib.request.urlopen(url, timeout=120.0) as answer, archive.open("wb") as file:
                got = _copied(answer, file)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ValueError(f"TB2_REPO_URL {url} cannot be downloaded: {error}") from error
        if got != digest:
            raise ValueError(f"TB2_REPO_URL {url} serves an archive with the checksum {got}, not {digest}")
        unpacked = Path(scratch, "unpacked")
        try:
            _unpack(archive, unpacked)
        # RuntimeError: an encrypted archive, an unknown compression. OSError: a file where another has a directory.
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OSError) as error:
            raise ValueError(f"TB2_REPO_URL {url} serves no sound zip archive: {error}") from error
        unpacked.rename(made)


def _copied(answer: IO[bytes], file: IO[bytes]) -> str:
    """The checksum of what was copied."""
    digest, total = hashlib.sha256(), 0
    while block := answer.read(1 << 20):
        total += len(block)
        if total > MAX_DOWNLOAD_BYTES:
            raise ValueError(f"it is larger than {MAX_DOWNLOAD_BYTES} bytes")
        digest.update(block)
        file.write(block)
    return digest.hexdigest()


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the files of an archive, none of which may lie elsewhere; links are left out."""
    target.mkdir()
    with zipfile.ZipFile(archive) as packed:
        if sum(member.file_size for member in packed.infolist()) > MAX_UNPACKED_BYTES:
            raise ValueError(f"{archive.name} unpacks to more than {MAX_UNPACKED_BYTES >> 30} GiB")
        for member in packed.infolist():
            path, mode = PurePosixPath(member.filename), member.external_attr >> 16
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"the archive of TB2_REPO_URL holds {member.filename!r}, which leads out of it")
            place = target / path
            if member.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            elif mode & 0o170000 != 0o120000:
                place.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(member) as content, place.open("wb") as file:
                    shutil.copyfileobj(content, file)
                place.chmod(0o755 if mode & 0o111 else 0o644)
