"""The data of one task: what travels to workers and lands on the trace.

Invariant: JSON-safe and complete in itself; nothing here refers to a file of the machine that loaded it. The
answer and the verify commands are part of it and never enter the sandbox before the agent has ended.
"""

from typing import Self

import verifiers.v1 as vf
from opencode_rubrics.code_problem import CodeTests
from opencode_rubrics.swe.problem import SweProblem
from opencode_rubrics.task_tests import StagedTests
from opencode_runs.turns.kept import TurnRow
from pydantic import Field, JsonValue

from opencode_env.taskset.folders.task_folder import TaskFolder


class OpenCodeTaskData(vf.TaskData):
    """A question with the means to prepare the sandbox for it and to check the answer."""

    row_key: str | None = None
    """The row's identity: its id, or a hash of its content without its position, instructions and `info`."""
    answer: str | None = None
    """The right answer; numbers in decimal notation."""
    options: dict[str, str] | None = None
    """The options of a multiple-choice question, by their letters."""
    setup: list[str] = Field(default_factory=list)
    """Shell commands that prepare the sandbox before the agent starts."""
    verify: list[str] = Field(default_factory=list)
    """Shell commands that check the agent's work after it ended."""
    setup_timeout: float | None = None
    """Seconds per setup command; `None`: the task config's `setup_timeout`."""
    rubric: dict[str, JsonValue] | None = None
    """The configuration of the row's own rubric; `None`: the task config's, or the one that fits the row."""
    verify_timeout: float | None = None
    """Seconds per verify command; `None`: the rubric's `command_timeout`."""
    code_tests: CodeTests | None = None
    """The tests of a programming problem, those that were drawn of them."""
    swe: SweProblem | None = None
    """A software engineering task: how its work directory is made, and the suite that judges it."""
    tests: StagedTests | None = None
    """The test script of a task directory, which scores it."""
    folder: TaskFolder | None = None
    """How the sandbox of a task directory is made ready."""
    kept_turn: TurnRow | None = None
    """The kept turn that rollouts of the task go on from."""
    info: dict[str, JsonValue] = Field(default_factory=dict)
    """All other columns of the row."""

    @property
    def shortened(self) -> bool:
        """Whether these are a trace's, which lack files."""
        return self.swe is not None and self.swe.shortened

    def recorded(self) -> Self:
        """The data as they stand on a trace; the files of a repository, by their digest."""
        return self if self.swe is None else self.model_copy(update={"swe": self.swe.recorded()})
