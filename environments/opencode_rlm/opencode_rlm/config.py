"""`OpenCodeRLMEnvConfig`: the two seats and what bounds the calls of the second one."""

from typing import Any, Self

from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.cli_agent.interception import SubSettings
from opencode_env.cli_agent.seats import local_seat
from pydantic import Field, FiniteFloat, model_validator
from verifiers.v1.configs.agent import AgentConfig, TimeoutConfig
from verifiers.v1.harnesses.null import NullHarnessConfig


class OpenCodeRLMHarnessConfig(OpenCodeHarnessConfig):
    """OpenCode with the RLM plugin."""

    disabled_tools: list[str] | None = Field(default_factory=lambda: ["question"])
    """Built-in tools the model does not get: nobody answers a `question`."""
    recursion_prompt: str | None = None
    """Section of the system prompt about sub-LLM calls; None takes the one that ships, empty leaves it out."""
    subcall_description: str | None = None
    """What the model reads about the tool `llm_subcall`; None takes the text that ships."""
    subcall_output: int = Field(20_000, ge=200)
    """Characters of answers that one `llm_subcall` returns; the whole goes to a file whose path is returned."""


class OpenCodeRLMEnvConfig(OpenCodeEnvConfig):
    """Recursive OpenCode; over any taskset with `--env.id opencode-rlm`."""

    agent: AgentConfig = local_seat(OpenCodeRLMHarnessConfig(id="opencode-rlm"))
    """The main agent: OpenCode with the RLM plugin, in the confined local sandbox unless another runtime is named."""
    sub: AgentConfig = local_seat(NullHarnessConfig(id="null"))
    """Who answers sub-LLM calls: model, client, sampling, and budgets over all sub calls of a rollout (`max_turns`,
    `max_input_tokens`, `max_output_tokens`, `max_total_tokens`). It runs no program, so its harness, runtime and
    timeouts mean nothing."""

    sub_model: str | None = None
    """Short for `sub.model`; None = the run's model."""
    max_sub_llm_parallelism: int = Field(10, ge=1)
    """Sub calls at once in one rollout; more wait in the order in which they came."""
    sub_llm_max_turns: int = Field(10, ge=1)
    """Answers per sub conversation: a sub-agent is asked for its conclusion with the last one."""
    sub_timeout: FiniteFloat = Field(120.0, gt=0)
    """Seconds for one sub call at the model endpoint; waiting for its place does not count."""
    include_sub_llm_in_trajectory: bool = False
    """Whether the sub trace is trainable; it then carries the main trace's rewards."""
    max_depth: int = Field(1, ge=0)
    """How deep sub-agents (`task` tool) may nest; 0 takes the tool away. One-shot calls do not count."""

    @model_validator(mode="before")
    @classmethod
    def _endpoint_without_type(cls, data: Any) -> Any:
        """An endpoint of the sub seat's own is an OpenAI-compatible one unless it says otherwise."""
        match data:
            case {"sub": {"client": dict(client)} as sub} if "type" not in client:
                return {**data, "sub": {**sub, "client": {"type": "eval", **client}}}
        return data

    @model_validator(mode="after")
    def _resolve_sub_seat(self) -> Self:
        if self.sub_model is not None and self.sub.model not in (None, self.sub_model):
            raise ValueError(
                f"--env.sub-model {self.sub_model} and --env.sub.model {self.sub.model} differ: give one of them"
            )
        if self.sub.timeout != TimeoutConfig():
            raise ValueError("--env.sub.timeout does not apply, the seat runs no program: use --env.sub-timeout")
        if self.sub_model is not None and self.sub.model is None:
            self.sub = self.sub.model_copy(update={"model": self.sub_model})
        return self

    @property
    def sub_settings(self) -> SubSettings:
        """What bounds the sub calls of one rollout."""
        return SubSettings(
            max_parallel=self.max_sub_llm_parallelism,
            max_turns=self.sub_llm_max_turns,
            timeout=self.sub_timeout,
            max_depth=self.max_depth,
        )
