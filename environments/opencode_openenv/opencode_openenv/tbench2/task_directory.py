"""Finds a task directory by its name or path, and reads it.

Invariant: nothing outside of the tasks' directory is read, whatever a caller or a link says.
"""

from pathlib import Path

from opencode_env.taskset import OpenCodeTask, OpenCodeTasksetConfig
from opencode_env.taskset.errors import nearest_name
from opencode_env.taskset.folders.declaration import CONFIG_FILE
from opencode_env.taskset.folders.reading import read_folder, task_directories
from opencode_env.taskset.mapping import RowMapper

from opencode_openenv.tbench2.download import downloaded_benchmark
from opencode_openenv.tbench2.settings import Settings


def find_task(settings: Settings, task_id: object, task_path: object) -> Path:
    """The directory of a task (blocking: it may download).

    Raises:
        ValueError: there is no such task, or the path leaves the tasks' directory.
    """
    root = settings.tasks_dir
    if root is None:
        root = downloaded_benchmark(settings.repo_url, settings.cache_dir)
    if not root.is_dir():
        raise ValueError(f"tasks_dir {str(root)!r} is not a directory: set TB2_TASKS_DIR to the folder of the tasks")
    if not task_id and not task_path:
        raise ValueError(f"reset needs a task_id or a task_path; {nearest_name('', _names(root))}")
    given, name = ("task_path", task_path) if task_path else ("task_id", task_id)
    if not isinstance(name, str) or "\0" in name:
        raise ValueError(f"{given} is {name!r}, which names no directory")
    wanted = Path(name)
    folder = wanted if wanted.is_absolute() else root / wanted
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
