"""`HybridMathRubric`: the rules first, a judge where they say no, to an answer that is there and can be used."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, Literal

import verifiers.v1 as vf
from mathverdict.finals import reference_value
from mathverdict.verdict import Source
from pydantic import Field, JsonValue
from rollout_sandbox.errors import ScoringError
from rollout_sandbox.surrogates import has_lone_surrogate
from rollout_sandbox.toolbox.bounded_file import FileState, read_bounded_text
from rollout_sandbox.toolbox.scoring import Scoring, scoring_of
from rollout_sandbox.toolbox.workdir import in_workdir
from typing_extensions import TypeVar

from opencode_rubrics.errors import JudgeError
from opencode_rubrics.judge import MAX_ANSWER_CHARS, NONE_ON_THIS, Judge, JudgeOptions
from opencode_rubrics.math.worker_pool import RulesResult, WorkerPool, release_pool, shared_pool, usable_cores
from opencode_rubrics.rubric import AnyTrace, NeutralAnswer, Rubric, note_unreadable

MATH_KEY = "math"
"""Where `trace.info` says how the score came about."""


class MathConfig(JudgeOptions):
    """Sets what both math rubrics have in common: the rules' limits and the judge behind them, who answers A (right), B
    (wrong) or C (cannot be told)."""

    timeout_seconds: float = Field(5.0, gt=0, allow_inf_nan=False)
    """CPU seconds that one answer may cost; beyond them the rules say no ("timed_out")."""
    max_workers: int | None = Field(None, ge=1)
    """Worker processes that verify on the host, shared by all rollouts of this process. `None`: what the variable
    `MATHVERDICT_WORKERS` says, else one per core that its container's quota leaves; more make nothing faster."""
    max_answer_bytes: int = Field(64 * 1024, ge=1, le=1 << 20)
    """A larger answer is a 0 ("oversized")."""
    accept_unrounded: bool = False
    """Also take a value that rounds to the reference where that is a decimal, as 1/3 to 0.33."""
    use_judge_fallback: bool = False
    """Ask a language model when the rules say no to an answer that is there."""


class HybridMathConfig(MathConfig):
    """Options of `HybridMathRubric`."""

    type: Literal["hybrid-math"] = "hybrid-math"
    answer_source: Literal["reply", "file"] = "reply"
    """"reply": the last reply's final box, after any `</think>`. "file": the file at `answer_path`."""
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox, below the work directory unless it is absolute; for `answer_source = "file"`."""


MathConfigT = TypeVar("MathConfigT", bound=MathConfig)


class MathRubric(Rubric[MathConfigT], Generic[MathConfigT]):
    """Holds what the math rubrics share; a subclass says how the rules are asked."""

    async def rule(self, task: vf.TaskData, reference: str, trace: AnyTrace, runtime: vf.Runtime | None) -> RulesResult:
        """The rules' result on the rollout's answer."""
        raise NotImplementedError

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `reference`; a `ScoringError` if the task has none."""
        reference = getattr(task, "answer", None)
        if not isinstance(reference, str) or not reference_value(reference):
            raise ScoringError(f'rubric "{self.config.type}" needs a task with an answer: set the row\'s answer')
        return {"reference": reference}

    def weight(self, name: str, scorer: Callable[..., Any]) -> float:
        """1 for `correct_answer`, 0 for those that tell who said so."""
        return float(name == "correct_answer")

    @vf.reward
    async def correct_answer(
        self, task: vf.TaskData, reference: str, trace: AnyTrace, runtime: vf.Runtime | None = None
    ) -> dict[str, float]:
        """`correct_answer`, by rules or judge; `math_verify_score`, by the rules alone; `judge_score`, by the judge."""
        started, by_judge = time.perf_counter(), False
        rules = await self.rule(task, reference, trace, runtime)
        started += rules.waited
        record: dict[str, JsonValue] = {
            "decided_by": "rules" if rules.text else "none",
            "correct": rules.right,
            "reason": rules.reason,
            "judge_verdict": None,
            "judge_error": None,
            "answer": rules.answer[:1000],
            "place": rules.place,
            "rules_seconds": round(rules.seconds, 4),
        }
        trace.info[MATH_KEY] = record
        try:
            if self.config.use_judge_fallback and (answer := await self._answer_for_judge(rules, trace)):
                by_judge = await self._judged(answer, task.prompt_text, reference, trace, record)
        finally:
            seconds = time.perf_counter() - started
            record["seconds"] = round(seconds, 4)
        trace.record_metrics({"conflicting_answers": float(rules.conflicting), "scoring_seconds": seconds})
        right = {"math_verify_score": float(rules.right), "judge_score": float(by_judge)}
        return {"correct_answer": max(right.values()), **right}

    async def _judged(
        self, answer: str, question: str, reference: str, trace: AnyTrace, record: dict[str, JsonValue]
    ) -> bool:
        judge = Judge(self.config, ("A", "B", "C"), "judge_prompt.txt", "math_judge")
        try:
            verdict = await judge.verdict_on(answer, question, reference, trace)
        except JudgeError as error:
            record["judge_error"] = str(error)
            raise
        if verdict is None:
            # The rules' verdict stands.
            record["judge_error"] = NONE_ON_THIS
            note_unreadable(trace, self.config.type, NONE_ON_THIS)
        else:
            record |= {"decided_by": "judge", "judge_verdict": verdict, "correct": verdict == "A"}
        return verdict == "A"

    async def teardown(self) -> None:
        """Let go of the worker processes."""
        release_pool(self)

    async def _answer_for_judge(self, rules: RulesResult, trace: AnyTrace) -> str:
        """The one extracted answer that the rules refused, if it can be sent and looked at whole; else empty."""
        if rules.right or rules.conflicting:
            return ""
        answer = rules.answer
        if rules.reason == "timed_out" and rules.text:
            seconds = self.config.timeout_seconds
            answer = await self._pool().stated_answer(rules.text, rules.source, seconds, scoring_of(trace))
        return "" if len(answer) > MAX_ANSWER_CHARS or has_lone_surrogate(answer) else answer.strip()

    def _pool(self) -> WorkerPool:
        return shared_pool(self, self.config.max_workers or usable_cores())

    async def rule_on_file(self, reference: str, runtime: vf.Runtime, path: str, question: str) -> RulesResult:
        """The rules' result on a bounded file that is taken out of the sandbox."""
        found = await read_bounded_text(runtime, path, self.config.max_answer_bytes)
        if isinstance(found, FileState):
            return RulesResult(False, found.name.lower())
        return replace(await self._verified(reference, found, "file", question, scoring_of(runtime)), text=found)

    async def _verified(
        self, reference: str, text: str, source: Source, question: str, scoring: Scoring
    ) -> RulesResult:
        seconds, unrounded = self.config.timeout_seconds, self.config.accept_unrounded
        pool = self._pool()
        return await pool.verify(reference, text, source, seconds, scoring, question=question, unrounded=unrounded)


class HybridMathRubric(MathRubric[HybridMathConfig]):
    """Scores mathematics on the host: math-verify in worker processes, then the judge if it is switched on."""

    version = "2"

    async def prepare(self, task: vf.TaskData, sandbox: str | None) -> Mapping[str, object]:
        """The `reference`; a `ScoringError` also if there is no sandbox for the answer file."""
        if self.config.answer_source == "file" and sandbox is None:
            raise ScoringError('answer_source "file" needs a live sandbox: use answer_source "reply"')
        return await super().prepare(task, sandbox)

    def neutral(self, task: vf.TaskData) -> NeutralAnswer:
        """The reference; a reply is read without a sandbox, from its box."""
        neutral = super().neutral(task)
        if self.config.answer_source == "file":
            return neutral
        return NeutralAnswer(rf"\boxed{{{neutral.reply}}}", None, sandbox=False)

    async def rule(self, task: vf.TaskData, reference: str, trace: AnyTrace, runtime: vf.Runtime | None) -> RulesResult:
        """The rules' result on the last reply, or on the answer file."""
        if self.config.answer_source == "file":
            assert runtime is not None
            return await self.rule_on_file(
                reference, runtime, in_workdir(trace, self.config.answer_path), task.prompt_text
            )
        reply = trace.last_reply
        if len(reply.encode(errors="replace")) > self.config.max_answer_bytes:
            return RulesResult(False, "oversized")
        rules = await self._verified(reference, reply, "reply", task.prompt_text, scoring_of(trace))
        answer = "" if rules.reason == "unfinished_thinking" else reply.rpartition("</think>")[2]
        return replace(rules, text=answer, source="reply")
