"""A task of one's own is scored as rubrics/README.md says: by its own rewards, or by a rubric that it names."""

from collections.abc import Sequence
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, Rubric, RubricTask, VerifyCommandsRubric, answer_text
from rollout_sandbox.toolbox.workdir import workdir_of

from tests.rubrics.conftest import trace_of


class SquaresData(vf.TaskData):
    numbers: list[int] = [3, 4, 5, 6]


class Squares(VerifyCommandsRubric):
    def commands(self, task: Any) -> Sequence[str]:
        return [f'test "$(run-agent-code --timeout 10 -- python3 solve.py {n})" = {n * n}' for n in task.numbers]


class SquaresTask(RubricTask[SquaresData]):
    rubric = Squares()

    @vf.reward(weight=0.25)
    async def told(self, trace: AnyTrace) -> float:
        return float(bool(trace.last_reply))


@pytest.mark.parametrize(
    ("program", "share"),
    [("print(int(sys.argv[1]) ** 2)", 1.0), ("print(9)", 0.25), ("sys.exit(0)", 0.0), ("", 0.0)],
    ids=["right", "guessed", "exit code alone", "no program"],
)
async def test_commands_are_made_from_the_task(confined: vf.Runtime, program: str, share: float) -> None:
    task = SquaresTask(SquaresData(prompt="?"), vf.TaskConfig())
    trace = trace_of(task.data, "done")
    if program:
        await confined.write(f"{workdir_of(trace)}/solve.py", f"import sys; {program}".encode())
    await task.score(trace, confined)
    assert {name: one.score for name, one in trace.rewards.items() if one} == {"verify": share, "told": 1.0}
    assert trace.metrics["verify_total"] == 4.0
    assert task.rubric.longest(task.data) == 4 * 120.0


async def test_a_task_without_commands_is_an_error_of_the_row(confined: vf.Runtime) -> None:
    task = SquaresTask(SquaresData(prompt="?", numbers=[]), vf.TaskConfig())
    with pytest.raises(vf.TaskError, match="needs a task with verify commands"):
        await task.score(trace_of(task.data), confined)


async def test_a_rollout_whose_setup_ran_out_of_time_is_not_scored(confined: vf.Runtime) -> None:
    task = SquaresTask(SquaresData(prompt="?"), vf.TaskConfig())
    trace = trace_of(task.data)
    trace.stop("setup_timeout")
    await task.score(trace, confined)
    assert not trace.rewards


class Nothing(RubricTask[SquaresData]):
    """Names no rubric."""


async def test_a_rubric_task_without_a_rubric_says_so() -> None:
    task = Nothing(SquaresData(prompt="?"), vf.TaskConfig())
    with pytest.raises(NotImplementedError, match="Nothing has no `rubric`"):
        await task.score(trace_of(task.data))
    assert isinstance(SquaresTask.rubric, Rubric)


@pytest.mark.parametrize(
    ("left", "text"),
    [
        ("printf hello >{}", "hello"),
        ("true", None),
        ("ln -s /etc/passwd {}", None),
        ("mkdir {}", None),
        ("mkfifo {}", None),
        ("printf 'a\\000b' >{}", None),
        ("head -c 65537 /dev/zero | tr '\\0' a >{}", None),
        (": >{}", ""),
    ],
)
async def test_the_text_of_an_answer_file(confined: vf.Runtime, left: str, text: str | None) -> None:
    trace = trace_of(vf.TaskData(prompt="?"))
    path = f"{workdir_of(trace)}/answer.txt"
    made = await confined.run(["sh", "-c", left.format(path)], {})
    assert made.exit_code == 0, made.stderr
    assert await answer_text(trace, confined, "answer.txt") == text
    assert await answer_text(trace, confined, path) == text
