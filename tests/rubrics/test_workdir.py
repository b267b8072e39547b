"""Where a rollout works, by what was named."""

from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_rubrics import in_workdir, work_directory

from tests.rubrics.conftest import trace_of


def directory(task: str | None = None, harness: str | None = None, runtime: str | None = None) -> str:
    """The work directory of a seat and a task that name these."""
    named: Any = vf.HarnessConfig(id="x").model_copy(update={"agent_workdir": harness})
    box = vf.DockerConfig(image="i", workdir=runtime)
    seat = vf.AgentConfig(runtime=box).model_copy(update={"harness": named})
    return work_directory(vf.TaskData(idx=0, prompt="x", workdir=task), seat)


def test_the_runtime_goes_before_the_task_before_the_harness() -> None:
    assert directory("/t", "/h", "/r") == "/r"
    assert directory("/t", "/h") == "/t"
    assert directory(None, "/h") == "/h"
    assert directory() == "/app"


def test_it_is_normal() -> None:
    assert directory("/app/../work/") == "/work"
    assert directory("//app//x") == "/app/x"


@pytest.mark.parametrize("path", ["rel/dir", "~/x", "./x", "/a\0b", "/\ud800"])
def test_what_is_no_absolute_path_is_refused_with_the_options_to_change(path: str) -> None:
    with pytest.raises(vf.TaskError, match=r"--env\.agent\.harness\.agent-workdir"):
        directory(None, path)


def test_an_answer_file_lies_in_it_unless_its_path_is_absolute() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x", workdir="/work"))
    assert in_workdir(trace, "answer.txt") == "/work/answer.txt"
    assert in_workdir(trace, "/tmp/a") == "/tmp/a"
