"""`HybridMathRubric`: the rules first, a judge where they say no.

Invariant: each rollout is verified once, whatever number of rewards and metrics report on it; an answer that is not
there, cannot be used, conflicts with itself or is too long for a judge is a 0 without asking anyone.
"""

import asyncio
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, Literal

import verifiers.v1 as vf
from mathverdict.finals import reference_value
from mathverdict.verdict import Source
from pydantic import JsonValue
from typing_extensions import TypeVar

from opencode_rubrics.errors import JudgeError, ScoringError
from opencode_rubrics.half_characters import has_half_character
from opencode_rubrics.judge import MAX_ANSWER_CHARS, Judge
from opencode_rubrics.math.rules_result import RulesResult
from opencode_rubrics.math.worker_pool import WorkerPool, release_pool, shared_pool, usable_cores
from opencode_rubrics.math_config import HybridMathConfig, MathConfig
from opencode_rubrics.registry import register_rubric
from opencode_rubrics.rubric import AnyTrace, Rubric
from opencode_rubrics.sandbox.bounded_file import FileState, read_bounded_text
from opencode_rubrics.sandbox.workdir import in_workdir

INFO_KEY = "math"
"""Where `trace.info` says how the score came about."""

_NONE_ON_THIS = "the judge gives no verdict on this answer, though it gives one on the reference"

MathConfigT = TypeVar("MathConfigT", bound=MathConfig)


@dataclass(frozen=True)
class Ruling:
    """The rules' result, with the text that it is about."""

    rules: RulesResult
    text: str = ""
    """The reply or the file; empty if there is nothing in it that could be an answer."""
    source: Source = "file"
    """What `text` is."""
    place: Literal["host", "sandbox"] = "host"
    """Where the rules ran."""


@dataclass(frozen=True)
class _Scored:
    ruling: Ruling
    seconds: float
    judged: str | None = None
    judge_error: str | None = None
    """Why the judge gave no verdict; the rules' stands, and is not a score if the judge itself does not work."""

    @property
    def by_judge(self) -> bool:
        return self.judged == "A"

    def record(self) -> dict[str, JsonValue]:
        rules = self.ruling.rules
        decided = "judge" if self.judged else "rules" if self.ruling.text else "none"
        return {
            "decided_by": decided,
            "correct": rules.right or self.by_judge,
            "reason": rules.reason,
            "judge_verdict": self.judged,
            "judge_error": self.judge_error,
            "answer": rules.answer[:1000],
            "place": self.ruling.place,
            "seconds": round(self.seconds, 4),
            "rules_seconds": round(rules.seconds, 4),
        }


@dataclass
class _Scoring:
    """One rollout being scored."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    scored: _Scored | None = None


_scoring: ContextVar[_Scoring] = ContextVar("opencode_rubrics_math_scoring")


class MathRubric(Rubric[MathConfigT], Generic[MathConfigT]):
    """What the math rubrics share: rewards, metrics, judge and worker pool; a subclass says how the rules are asked."""

    async def rule(self, task: vf.TaskData, reference: str, trace: AnyTrace, runtime: vf.Runtime | None) -> Ruling:
        """The rules' result on the rollout's answer."""
        raise NotImplementedError

    async def score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> None:
        """Record `math_verify_score`, `judge_score`, `correct_answer` and the metrics, and how they came about.

        Raises:
            ScoringError: the task has no reference, or something needed for a verdict does not work.
            SandboxError: the sandbox is gone.
        """
        token = _scoring.set(_Scoring())
        try:
            await super().score(task, trace, runtime)
        finally:
            _scoring.reset(token)

    @vf.reward(weight=1.0)
    async def correct_answer(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None = None) -> float:
        """1.0 if the rules or the judge say that the answer is right."""
        scored = await self._scored(task, trace, runtime)
        return float(scored.ruling.rules.right or scored.by_judge)

    @vf.reward(weight=0.0)
    async def math_verify_score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None = None) -> float:
        """1.0 if the rules say that the answer is right."""
        return float((await self._scored(task, trace, runtime)).ruling.rules.right)

    @vf.reward(weight=0.0)
    async def judge_score(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None = None) -> float:
        """1.0 if the judge was asked and says that the answer is right."""
        return float((await self._scored(task, trace, runtime)).by_judge)

    @vf.metric
    async def conflicting_answers(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None = None) -> float:
        """1.0 if several different final answers were given, which are not rewarded."""
        return float((await self._scored(task, trace, runtime)).ruling.rules.conflicting)

    @vf.metric
    async def scoring_seconds(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None = None) -> float:
        """Wall-clock seconds from the first question to the verdict, without waiting for a place in the pool."""
        return (await self._scored(task, trace, runtime)).seconds

    async def teardown(self) -> None:
        """Let go of the worker processes."""
        release_pool(self)

    async def _scored(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> _Scored:
        scoring = _scoring.get()
        async with scoring.lock:
            if scoring.scored is None:
                scoring.scored = await self._decide(task, trace, runtime)
                trace.info[INFO_KEY] = scoring.scored.record()
            return scoring.scored

    async def _decide(self, task: vf.TaskData, trace: AnyTrace, runtime: vf.Runtime | None) -> _Scored:
        started = time.perf_counter()
        reference = getattr(task, "answer", None)
        if not isinstance(reference, str) or not reference_value(reference):
            raise ScoringError(f'rubric "{self.config.type}" needs a task with an answer: set the row\'s answer')
        ruling = await self.rule(task, reference, trace, runtime)
        started += ruling.rules.waited
        answer = await self._answer_for_judge(ruling) if self.config.use_judge_fallback else ""
        if not answer:
            return _Scored(ruling, time.perf_counter() - started)
        try:
            judge = Judge(self.config, ("A", "B", "C"), "judge_prompt.txt", "math_judge")
            judged = await judge.verdict_on(answer, task.prompt_text, reference, trace)
        except JudgeError as error:
            trace.info[INFO_KEY] = _Scored(ruling, time.perf_counter() - started, judge_error=str(error)).record()
            raise
        return _Scored(ruling, time.perf_counter() - started, judged, None if judged else _NONE_ON_THIS)

    async def _answer_for_judge(self, ruling: Ruling) -> str:
        """The one extracted answer that the rules refused, if it can be sent and looked at whole; else empty."""
        rules = ruling.rules
        if rules.right or rules.conflicting:
            return ""
        answer = rules.answer
        if rules.reason == "timed_out" and ruling.text:
            answer = await self._pool().stated_answer(ruling.text, ruling.source, self.config.timeout_seconds)
        return "" if len(answer) > MAX_ANSWER_CHARS or has_half_character(answer) else answer.strip()

    def _pool(self) -> WorkerPool:
        return shared_pool(self, self.config.max_workers or usable_cores())

    async def rule_on_host(self, reference: str, text: str, source: Source) -> RulesResult:
        """The rules' result from the worker processes of this machine."""
        return await self._pool().verify(reference, text, source, self.config.timeout_seconds)

    async def rule_on_file(self, reference: str, runtime: vf.Runtime, path: str) -> Ruling:
        """The rules' result on a bounded file that is taken out of the sandbox.

        Raises:
            SandboxError: the sandbox is gone.
        """
        found = await read_bounded_text(runtime, path, self.config.max_answer_bytes)
        if found.state is not FileState.TEXT:
            return Ruling(RulesResult(False, found.state.name.lower()))
        return Ruling(await self.rule_on_host(reference, found.text, "file"), found.text)


@register_rubric
class HybridMathRubric(MathRubric[HybridMathConfig]):
    """Scores mathematics on the host: math-verify in worker processes, then the judge if it is switched on."""

    async def rule(self, task: vf.TaskData, reference: str, trace: AnyTrace, runtime: vf.Runtime | None) -> Ruling:
        """The rules' result on the last reply, or on the answer file."""
        if self.config.answer_source == "file":
            if runtime is None:
                raise ScoringError('answer_source "file" needs a live sandbox: use answer_source "reply"')
            return await self.rule_on_file(reference, runtime, in_workdir(trace, self.config.answer_path))
        reply = trace.last_reply
        if len(reply.encode(errors="replace")) > self.config.max_answer_bytes:
            return Ruling(RulesResult(False, "oversized"))
        rules = await self.rule_on_host(reference, reply, "reply")
        thinking = rules.reason == "unfinished_thinking"
        return Ruling(rules, "" if thinking else reply.rpartition("</think>")[2], "reply")
