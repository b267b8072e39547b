"""Scores a rollout by its final answer: a file in the sandbox or the last reply.

Invariant: whatever the agent left as its answer is at worst a reward of 0 with a reason on the trace.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import verifiers.v1 as vf
from pydantic import Field
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded_text
from rollout_sandbox.toolbox.workdir import in_workdir

from opencode_rubrics.rubric import AnyTrace, Rubric, RubricConfig

MAX_ANSWER_FILE_BYTES = 64 * 1024


class AnswerConfig(RubricConfig):
    """Options of `AnswerRubric`."""

    type: Literal["answer"] = "answer"
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox of the file that holds the answer, below the work directory unless it is absolute. If there
    is none, the last reply is the answer."""


@dataclass(frozen=True)
class GivenAnswer:
    """The answer as found; `reason` says why there is none."""

    source: Literal["file", "reply"]
    text: str = ""
    reason: str = ""


async def answer_text(trace: AnyTrace, runtime: vf.Runtime, path: str) -> str | None:
    """The text of the file at `path`, below the work directory unless it is absolute. None where there is none: it is
    missing, a link, no text, or longer than 64 KiB."""
    found = await read_bounded_text(runtime, in_workdir(trace, path), MAX_ANSWER_FILE_BYTES)
    return None if isinstance(found, FileState) else found


async def given_answer(trace: AnyTrace, runtime: vf.Runtime, path: str) -> GivenAnswer:
    """The answer file at `path`, below the work directory unless it is absolute; the last reply where there is none."""
    found = await read_bounded_text(runtime, in_workdir(trace, path), MAX_ANSWER_FILE_BYTES)
    if found is FileState.ABSENT:
        reply = trace.last_reply
        return GivenAnswer("reply", reply, "" if reply else "empty")
    if isinstance(found, FileState):
        return GivenAnswer("file", reason=found.name.lower())
    return GivenAnswer("file", found, "" if found.strip() else "empty")


class AnswerRubric(Rubric[AnswerConfig]):
    """Reward `exact_answer`: 1 if the agent's answer equals the task's, else 0.

    Equal means the same text apart from whitespace, or the same number. `trace.info["answer"]` says where
    the answer came from and why it was taken or not.
    """

    version = "1"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The answer that is `expected`; a `TaskError` if the task has none."""
        expected = getattr(task, "answer", None)
        if not isinstance(expected, str) or not expected.strip():
            raise vf.TaskError('rubric "answer" needs a task with an answer')
        return {"expected": expected}

    @vf.reward
    async def exact_answer(self, expected: str, trace: AnyTrace, runtime: vf.Runtime) -> float:
        """1.0 for the right answer, 0.0 for a wrong, missing or unusable one."""
        given = await given_answer(trace, runtime, self.config.answer_path)
        right = not given.reason and same_answer(given.text, expected)
        trace.info["answer"] = {"source": given.source, "reason": given.reason or ("equal" if right else "different")}
        return float(right)


# Groups of three after the first comma, or no comma at all: "1,2" is a pair, not twelve.
_NUMBER = re.compile(r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


def same_answer(given: str, expected: str) -> bool:
    """Whether two answers are equal, ignoring runs of whitespace, or as numbers (`1,234` is `1234.0`)."""
    given, expected = " ".join(given.split()), " ".join(expected.split())
    if given == expected:
        return True
    left, right = _number(given), _number(expected)
    return left is not None and left == right


def _number(text: str) -> Decimal | None:
    # Models and papers write the typographic minus sign.
    text = text.replace("\N{MINUS SIGN}", "-")
    return Decimal(text.replace(",", "")) if _NUMBER.fullmatch(text) else None
