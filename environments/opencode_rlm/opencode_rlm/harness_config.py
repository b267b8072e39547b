"""`OpenCodeRLMHarnessConfig`: what OpenCode is told about recursion, besides every knob of the OpenCode harness."""

from opencode_env.opencode import OpenCodeHarnessConfig
from pydantic import Field


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
