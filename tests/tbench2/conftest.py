"""Environments of Terminal-Bench 2 over the task directories of the tests; nothing of theirs is left behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opencode_openenv.tbench2 import Tbench2Environment

from tests.task_folders.folders import FOLDERS

TASKS = FOLDERS / "tasks"

MakeEnvironment = Callable[..., Tbench2Environment]


@pytest.fixture
def make_environment(sandboxes: None, tmp_path: Path) -> Iterator[MakeEnvironment]:
    """Makes environments, with a task in progress where one is named; they are closed at the end."""
    made: list[Tbench2Environment] = []

    def make(task: str | None = None, **options: Any) -> Tbench2Environment:
        environment = Tbench2Environment(**{"tasks_dir": TASKS, "output_dir": tmp_path / "logs", **options})
        made.append(environment)
        if task is not None:
            environment.reset(task_id=task)
        return environment

    yield make
    for environment in made:
        environment.close()


@pytest.fixture
def environment(make_environment: MakeEnvironment) -> Tbench2Environment:
    """An environment with a task in progress."""
    return make_environment("count-lines")
