"""What a caller of `run_rollout` asks for: its arguments, their defaults and their bounds.

The names and defaults of the arguments before `token_ids` are those of OpenEnv 0.3.1's `opencode_env`. What is wrong
with them is said in the words of `run_rollout`, all of it at once, and no message shows a value, because one of them is
a key. What depends on the server is found out later.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Annotated, Any, Literal, Self

from opencode_env.taskset.row import nearest_name
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

INSTALL_SECONDS = 240.0
"""Seconds until the sandbox is up and the agent installed in it."""
_COLLECT_SECONDS = 300.0
"""Seconds for what is done after the commands: ending processes, reading files, removing the sandbox."""
_COMMAND_GRACE_SECONDS = 50.0
"""Seconds beyond its own that a command may need to be ended."""


def _not_empty(command: str) -> str:
    if not command.strip():
        raise ValueError("is empty, and would always pass")
    return command


Command = Annotated[str, StringConstraints(max_length=100_000, pattern=r"^[^\x00]*$"), AfterValidator(_not_empty)]


def _in_order(given: Any) -> list[Any]:
    """Commands as a list. One text is an iterable of its characters, and a set has no order: both are mistakes."""
    if isinstance(given, str | bytes | bytearray | Mapping | Set) or not isinstance(given, Iterable):
        raise ValueError('must be a list of shell commands, such as ["true"]')
    return list(given)


Commands = Annotated[list[Command], Field(max_length=64), BeforeValidator(_in_order)]


class RolloutSpec(BaseModel, extra="forbid", frozen=True):
    """One rollout of OpenCode: the model's endpoint, the task, and the limits."""

    endpoint: Literal["", "vllm", "openai", "hf_router"] = Field(
        "",
        description="Shorthand for the model's endpoint: vllm, openai or hf_router. What is not given explicitly comes "
        "from the server's environment variables, then from its catalog.",
    )
    base_url: str = Field(
        "", max_length=2000, description="OpenAI-compatible endpoint, with its /v1. Wins over `endpoint`."
    )
    api_key: str = Field(
        "",
        max_length=10_000,
        repr=False,
        description="Key for the endpoint. It stays on the server and never enters the sandbox. The server's own key "
        "goes to the server's own endpoint only.",
    )
    model: str = Field("", max_length=1000, description="Model name, as the endpoint knows it.")
    instruction: str = Field(min_length=1, max_length=1_000_000, description="The prompt for the agent.")
    setup: Commands = Field(
        [],
        description="Shell commands, run one after another in /home/user before the agent starts. One that fails ends "
        "the rollout without agent and verify: the reward is null.",
    )
    verify: Commands = Field(
        [],
        description="Shell commands, run one after another in /home/user after the agent's processes have ended. The "
        "reward is passed / total, unless one writes a number to /home/user/logs/verifier/reward.txt.",
    )
    task_id: str = Field("", max_length=1000, description="Comes back in the result.")
    mode: Literal["transparent_proxy", "black_box"] = Field(
        "transparent_proxy", description="black_box records no turns."
    )
    disable_thinking: bool | None = Field(
        None, description="Sends chat_template_kwargs.enable_thinking=false; null is the catalog's choice."
    )
    max_tokens_cap: int = Field(4096, description="Cap of max_tokens per model call; 0 or less: no cap.")
    top_logprobs: int = Field(5, ge=0, le=1000, description="Alternatives per token, asked of the endpoint.")
    agent_timeout_s: FiniteFloat = Field(
        600.0, gt=0, description="Seconds for the agent alone. When they are up, verify still runs."
    )
    template: str = Field(
        "",
        max_length=1000,
        # No option of a container engine's command, and no transport but registries.
        pattern=r"^([A-Za-z0-9][\w./-]*(:\d+/[\w./-]+)?(:[\w.-]+)?(@[\w.:+-]+)?)?$",
        description="Container image; for servers that run containers.",
    )
    token_ids: bool = Field(
        False,
        description="Ask the endpoint token by token (vLLM's /inference/v1/generate), which gives a training_trace.",
    )
    tokenizer: str = Field(
        "", max_length=1000, description="Tokenizer for token_ids, as the server can load it; empty is the model's."
    )
    temperature: FiniteFloat | None = Field(
        None,
        gt=0,
        le=100,
        description="Temperature of every model call; null is the agent's own, and with token_ids 1. With token_ids "
        "nothing else narrows the sampling, so that the logprobs are those of the whole distribution.",
    )
    renderer: str = Field(
        "",
        max_length=100,
        description="How token_ids writes the conversation, such as qwen3; empty is found by the model's name.",
    )
    command_timeout_s: FiniteFloat = Field(
        120.0, gt=0, le=86_400, description="Seconds for each setup or verify command."
    )
    reward_min: FiniteFloat | None = Field(
        None,
        description="The least that the reward file may hold; beyond it the reward is 0. Where only reward_max is "
        "given it is 0, and where neither is, any number counts.",
    )
    reward_max: FiniteFloat | None = Field(
        None, description="The most that the reward file may hold, likewise; 1 where only reward_min is given."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        lowest, highest = self.reward_bounds or (0.0, 1.0)
        if lowest > highest:
            raise ValueError(f"reward_min {lowest:g} is above reward_max {highest:g}: give both, the smaller first")
        if (self.tokenizer or self.renderer) and not self.token_ids:
            raise ValueError("tokenizer and renderer are for token_ids: set token_ids = true, or leave them out")
        if self.token_ids and self.mode == "black_box":
            raise ValueError("mode = black_box records no turns, so no token_ids either: leave one of them out")
        return self

    @property
    def reward_bounds(self) -> tuple[float, float] | None:
        """The least and the most that the reward file may hold; None for callers that name, or know of, no bounds."""
        lowest, highest = self.reward_min, self.reward_max
        if lowest is None and highest is None:
            return None
        return 0.0 if lowest is None else lowest, 1.0 if highest is None else highest

    @property
    def longest_seconds(self) -> float:
        """Seconds after which the rollout has ended, whatever it does, once it has a place."""
        commands = (len(self.setup) + len(self.verify)) * (self.command_timeout_s + _COMMAND_GRACE_SECONDS)
        return INSTALL_SECONDS + commands + self.agent_timeout_s + _COLLECT_SECONDS


_PATTERNS = {
    "template": "is not a name of a container image, such as python:3.11-slim",
    "setup": "holds a NUL character, which no shell takes",
    "verify": "holds a NUL character, which no shell takes",
}
_TOLD = {
    "missing": "is missing",
    "string_type": "must be a text",
    "string_unicode": "holds a lone surrogate, which is not text",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length:,} characters",
    "too_long": "must hold at most {max_length} commands",
    "literal_error": "must be one of {expected}",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "value_error": "{error}",
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
}
"""What pydantic's kinds of errors mean here, with fields of their contexts."""


def read_arguments(arguments: Mapping[str, Any]) -> RolloutSpec:
    """The rollout that a caller asks for; an argument of None stands for its default. A `ValueError` says what is wrong
    with each argument."""
    try:
        return RolloutSpec.model_validate({name: value for name, value in arguments.items() if value is not None})
    except ValidationError as error:
        told = [_told(item) for item in error.errors()]
    raise ValueError(f"invalid arguments: {'; '.join(told)}")


def _told(error: ErrorDetails) -> str:
    name, *items = map(str, error["loc"] or ("",))
    where = name + "".join(f"[{item}]" for item in items)
    kind = error["type"]
    if kind == "extra_forbidden":
        return f"{where} is not an argument of run_rollout; {nearest_name(name, RolloutSpec.model_fields)}"
    if kind == "string_pattern_mismatch":
        return f"{where} {_PATTERNS[name]}"
    why = _TOLD[kind].format(**error.get("ctx", {})) if kind in _TOLD else error["msg"]
    return f"{where} {why}".strip()
