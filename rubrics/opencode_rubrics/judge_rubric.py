"""`JudgeRubric`: a language model compares the answer to any question with the reference.

Invariant: an answer that is not there, cannot be used or is too long is a 0 without asking anyone; a verdict is one of
the configured choices and nothing else; a judge that does not work is an error.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import verifiers.v1 as vf
from pydantic import Field, model_validator
from rollout_sandbox.surrogates import has_lone_surrogate
from rollout_sandbox.toolbox.scoring import ScoringError

from opencode_rubrics.answer import GivenAnswer, given_answer
from opencode_rubrics.judge import MAX_ANSWER_CHARS, NONE_ON_THIS, Judge, JudgeError, JudgeOptions
from opencode_rubrics.registry import register_rubric
from opencode_rubrics.rubric import AnyTrace, Place, Rubric, note_unreadable

INFO_KEY = "judge"
"""Where `trace.info` says how the score came about."""

_YES_OR_NO = {"yes": 1.0, "no": 0.0}


class JudgeRubricConfig(JudgeOptions):
    """Options of `JudgeRubric`."""

    type: Literal["judge"] = "judge"
    choices: dict[str, float] = _YES_OR_NO
    """What the judge may answer, each with the reward that it earns. Others than yes and no need a `judge_prompt`."""
    question_key: str | None = None
    """Column with the question, where the judge should not see the whole prompt, instructions and all."""
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox of the file that holds the answer, below the work directory unless it is absolute. If there
    is none, the last reply is the answer."""
    max_answer_chars: int = Field(MAX_ANSWER_CHARS, ge=1, le=1 << 18)
    """A longer answer is a 0 ("too_long"): a part of it could agree where all of it does not."""

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        words = {name.lower() for name in self.choices if name and name == name.strip()}
        if len(words) < max(2, len(self.choices)):
            raise ValueError("choices must be two or more different words, whatever their case")
        if not all(math.isfinite(value) for value in self.choices.values()):
            raise ValueError("choices must earn finite numbers")
        if self.judge_prompt is None and set(self.choices) != set(_YES_OR_NO):
            raise ValueError("choices other than yes and no need a judge_prompt that asks for them")
        return self


@register_rubric
class JudgeRubric(Rubric[JudgeRubricConfig]):
    """Reward `judge_reward`: what the judge's choice earns; `trace.info["judge"]` says what was judged and how."""

    version = "2"

    async def prepare(self, task: vf.TaskData, place: Place) -> Mapping[str, object]:
        """The `judge` and what it is asked; a `ScoringError` if the task has no reference, or not the question."""
        reference = getattr(task, "answer", None)
        if not isinstance(reference, str) or not reference.strip():
            raise ScoringError('rubric "judge" needs a task with an answer: set the row\'s answer')
        judge = Judge(self.config, tuple(self.config.choices), "judge_question_prompt.txt", "judge")
        return {"judge": judge, "question": self._question(task), "reference": reference}

    @vf.reward
    async def judge_reward(
        self, judge: Judge, question: str, reference: str, trace: AnyTrace, runtime: vf.Runtime
    ) -> float:
        """The number of the judge's choice; 0 for an answer that is missing or unusable, or on which alone the judge
        gives no verdict. A `JudgeError` if it gives none on the reference either."""
        given = _usable(await given_answer(trace, runtime, self.config.answer_path), self.config.max_answer_chars)
        record: dict[str, Any] = {"source": given.source, "reason": given.reason, "verdict": None}
        trace.info[INFO_KEY] = record
        if given.reason:
            return 0.0
        record["answer"] = given.text[:1000]
        try:
            verdict = await judge.verdict_on(given.text, question, reference, trace)
        except JudgeError as error:
            record["reason"] = str(error)
            raise
        record.update(verdict=verdict, reason="judged" if verdict else "no_verdict")
        if verdict is None:  # the answer's own doing: no choice of the judge's may be worth less
            note_unreadable(trace, "judge", NONE_ON_THIS)
            return min(0.0, *self.config.choices.values())
        return self.config.choices[verdict]

    def _question(self, task: vf.TaskData) -> str:
        key = self.config.question_key
        if key is None:
            return task.prompt_text
        question = getattr(task, "info", {}).get(key)
        if not isinstance(question, str) or not question.strip():
            raise ScoringError(f'the row has no text in column "{key}", which question_key names')
        return question


def _usable(given: GivenAnswer, max_chars: int) -> GivenAnswer:
    """The answer as the judge may see it, or why it may not."""
    text = given.text.strip()
    if given.source == "reply" and not given.reason:
        if "<think>" in text and "</think>" not in text:
            return GivenAnswer("reply", reason="unfinished_thinking")
        text = text.rpartition("</think>")[2].strip()
    if given.reason or not text:
        return GivenAnswer(given.source, reason=given.reason or "empty")
    if len(text) > max_chars or has_lone_surrogate(text):
        return GivenAnswer(given.source, reason="too_long" if len(text) > max_chars else "half_character")
    return GivenAnswer(given.source, text)
