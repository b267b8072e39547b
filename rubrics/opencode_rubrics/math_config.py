"""Options of the rubrics that verify mathematics."""

from typing import Literal

from pydantic import Field

from opencode_rubrics.judge import JudgeOptions


class MathConfig(JudgeOptions):
    """What both math rubrics have in common: the rules' limits and the judge behind them, who answers A (right), B
    (wrong) or C (cannot be told)."""

    timeout_seconds: float = Field(5.0, gt=0, allow_inf_nan=False)
    """CPU seconds that one answer may cost; beyond them the rules say no ("timed_out")."""
    max_workers: int | None = Field(None, ge=1)
    """Worker processes that verify on the host, shared by all rollouts of this process. `None`: one per usable core;
    more make nothing faster."""
    max_answer_bytes: int = Field(64 * 1024, ge=1, le=1 << 20)
    """A larger answer is a 0 ("oversized")."""
    use_judge_fallback: bool = False
    """Ask a language model when the rules say no to an answer that is there."""


class HybridMathConfig(MathConfig):
    """Options of `HybridMathRubric`."""

    type: Literal["hybrid-math"] = "hybrid-math"
    answer_source: Literal["reply", "file"] = "reply"
    """"reply": the last reply's final box, after any `</think>`. "file": the file at `answer_path`."""
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox, below the work directory unless it is absolute; for `answer_source = "file"`."""


class RemoteHybridMathConfig(MathConfig):
    """Options of `RemoteHybridMathRubric`."""

    type: Literal["remote-hybrid-math"] = "remote-hybrid-math"
    answer_path: str = Field("answer.txt", pattern=r"[^/]$")
    """Path in the sandbox of the file that holds the answer, below the work directory unless it is absolute."""
    scorer_timeout: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Seconds for the scorer in the sandbox, start-up included; beyond them the rollout is an error."""
    accept_in_box_scoring: bool = False
    """Score in the sandbox even where the agent could have replaced its programs (a container in which it is root).
    False: there the answer is taken out and verified on the host."""
