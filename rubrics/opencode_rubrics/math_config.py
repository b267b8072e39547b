"""Options of the rubrics that verify mathematics."""

from typing import Literal, Self

from pydantic import Field, model_validator
from verifiers.v1 import SamplingConfig
from verifiers.v1.configs.client import BaseClientConfig

from opencode_rubrics.config import RubricConfig

_PLACEHOLDERS = ("{question}", "{reference}", "{answer}")


class MathConfig(RubricConfig):
    """What both math rubrics have in common: the rules' limits and the judge behind them."""

    timeout_seconds: float = Field(5.0, gt=0, allow_inf_nan=False)
    """CPU seconds that one answer may cost; beyond them the rules say no ("timed_out")."""
    max_workers: int | None = Field(None, ge=1)
    """Worker processes that verify on the host, shared by all rollouts of this process. `None`: one per usable core;
    more make nothing faster."""
    max_answer_bytes: int = Field(64 * 1024, ge=1, le=1 << 20)
    """A larger answer is a 0 ("oversized")."""
    use_judge_fallback: bool = False
    """Ask a language model when the rules say no to an answer that is there."""
    judge_model: str = "gpt-5-nano"
    """The judge's model name."""
    judge_client: BaseClientConfig = BaseClientConfig()
    """The judge's endpoint, any OpenAI-compatible one: `base_url`, `api_key_var`, headers."""
    judge_sampling: SamplingConfig = SamplingConfig()
    """Sampling of the judge's calls; what the endpoint does not know goes along as is."""
    judge_prompt: str | None = None
    """Another prompt, with `{question}`, `{reference}` and `{answer}`; it has to ask for A (right), B (wrong) or C
    (cannot be told) alone on the last line. `None`: the one in `judge_prompt.txt`."""
    judge_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds per attempt."""
    judge_max_retries: int = Field(4, ge=0, le=20)
    """Further attempts after a timeout, a lost connection, a 408, 409, 429 or 5xx, with growing pauses."""

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        missing = [name for name in _PLACEHOLDERS if self.judge_prompt is not None and name not in self.judge_prompt]
        if missing:
            raise ValueError(f"judge_prompt must hold {', '.join(missing)}, which are replaced in every call")
        return self


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
