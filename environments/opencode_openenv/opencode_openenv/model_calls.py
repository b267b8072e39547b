"""How the model of a rollout is asked: the client, and in every call the sampling, over what the agent asks itself.

Invariant: with token ids, the tokens are sampled from the whole distribution at one temperature, whatever the agent
asks for, because a trainer recomputes their logprobs so.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig, TrainClientConfig

from opencode_openenv.catalog import Endpoint
from opencode_openenv.spec import RolloutSpec

_WHOLE_DISTRIBUTION: Mapping[str, float | int] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}
"""As vLLM writes that nothing narrows or bends it."""
_RUNS_CODE_OF: Mapping[str, str] = {"kimi-k2.5": "moonshotai/"}
"""Renderers that run Python code out of the tokenizer's repository in this process, and whose repositories they are
for (renderers 0.1.12 does so for pictures, with `trust_remote_code=True`)."""


def client_of(spec: RolloutSpec, endpoint: Endpoint, variable: str) -> EvalClientConfig | TrainClientConfig:
    """The client of a rollout, whose key is in the environment variable `variable`.

    Raises:
        ValueError: there is no such renderer, or it would run code of a repository that the caller names.
    """
    tokenizer = spec.tokenizer or endpoint.model
    owner = _RUNS_CODE_OF.get(spec.renderer)
    if owner is not None and not tokenizer.startswith(owner):
        raise ValueError(f"renderer {spec.renderer} runs code that comes with {owner}…, and not that of {tokenizer!r}")
    settings: dict[str, Any] = {"base_url": endpoint.base_url, "api_key_var": variable}
    if spec.token_ids:
        renderer = {"name": spec.renderer} if spec.renderer else None
        try:
            return TrainClientConfig(**settings, renderer=renderer, renderer_model_name=spec.tokenizer or None)
        except ValidationError as error:
            known = error.errors()[0].get("ctx", {}).get("expected_tags")
            told = f"there are: {known}" if known else "it needs more than a name"
            raise ValueError(f"renderer {spec.renderer!r} cannot be used; {told}") from None
    return EvalClientConfig(**settings)


def sampling_of(spec: RolloutSpec, endpoint: Endpoint) -> SamplingConfig:
    settings: dict[str, Any] = dict(_WHOLE_DISTRIBUTION) if spec.token_ids else {}
    if spec.temperature is not None:
        settings["temperature"] = spec.temperature
    if spec.max_tokens_cap > 0:
        settings["max_tokens"] = spec.max_tokens_cap
    if spec.mode == "transparent_proxy" and not spec.token_ids:
        settings["logprobs"] = True
        if spec.top_logprobs:
            settings["top_logprobs"] = spec.top_logprobs
    if endpoint.disable_thinking:
        settings["chat_template_kwargs"] = {"enable_thinking": False}
    return SamplingConfig(**settings)
