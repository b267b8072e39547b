"""A task with other methods: how an environment, its features and second boxes lay something around a task."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from verifiers.v1.task import Task

TaskT = TypeVar("TaskT", bound=Task[Any, Any, Any])


def with_methods(task: TaskT, **methods: Callable[..., Any]) -> TaskT:
    """The same task with these in place of its methods."""
    copied = copy.copy(task)  # not made anew: a constructor may want more than the data
    vars(copied).update(methods)
    return copied
