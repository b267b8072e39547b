"""Which language model judges, how it is asked, and how often."""

from typing import Self

from pydantic import Field, model_validator
from verifiers.v1 import SamplingConfig
from verifiers.v1.configs.client import BaseClientConfig

from opencode_rubrics.rubric import RubricConfig

_PLACEHOLDERS = ("{question}", "{reference}", "{answer}")


class JudgeOptions(RubricConfig):
    """The options of every rubric that asks a judge."""

    judge_model: str = "gpt-5-nano"
    """The judge's model name."""
    judge_client: BaseClientConfig = BaseClientConfig()
    """The judge's endpoint, any OpenAI-compatible one: `base_url`, `api_key_var`, headers."""
    judge_sampling: SamplingConfig = SamplingConfig()
    """Sampling of the judge's calls; what the endpoint does not know goes along as is."""
    judge_prompt: str | None = None
    """Another prompt, with `{question}`, `{reference}` and `{answer}`; it has to ask for one of the rubric's choices
    alone on the last line. `None`: the rubric's own."""
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
