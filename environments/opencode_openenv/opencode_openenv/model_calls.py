"""The model of a rollout: its endpoint, its client, and in every call the sampling, over what the agent asks itself.

An endpoint is made of explicit values over the server's environment variables over the catalog. The server's own keys
go to the server's own endpoints only. With token ids, the tokens are sampled from the whole distribution at one
temperature, whatever the agent asks for, because a trainer recomputes their logprobs so.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig, TrainClientConfig

from opencode_openenv.spec import RolloutSpec

NO_KEY = "intercepted"
"""Stands for a key where the endpoint asks for none; it is not sent."""


@dataclass(frozen=True)
class _Kind:
    """A shorthand: `prefix` of its environment variables, and what stands where they are not set."""

    prefix: str
    url_variable: str
    base_url: str = ""
    api_key: str = ""
    model: str = ""
    disable_thinking: bool = False
    always_v1: bool = False


CATALOG: Mapping[str, _Kind] = {
    "vllm": _Kind("VLLM", "VLLM_URL", api_key=NO_KEY, model="Qwen/Qwen3.5-4B", disable_thinking=True, always_v1=True),
    "openai": _Kind("OPENAI", "OPENAI_BASE_URL", "https://api.openai.com/v1", model="gpt-4o-mini"),
    "hf_router": _Kind(
        "HF_ROUTER",
        "HF_ROUTER_BASE_URL",
        "https://router.huggingface.co/v1",
        model="Qwen/Qwen3-4B-Instruct-2507:nscale",
    ),
}


@dataclass(frozen=True)
class ModelEndpoint:
    base_url: str
    api_key: str = field(repr=False)
    model: str
    disable_thinking: bool


def resolve_endpoint(spec: RolloutSpec, environment: Mapping[str, str] = os.environ) -> ModelEndpoint:
    """The endpoint of a rollout; a `ValueError` says which of base URL, key and model is missing or wrong."""
    kind = CATALOG.get(spec.endpoint)
    if kind is None:
        missing = [name for name in ("base_url", "model") if not getattr(spec, name)]
        if missing:
            raise ValueError(
                f"no {' and no '.join(missing)}: give base_url, api_key and model, or endpoint = {' | '.join(CATALOG)}"
            )
        return _checked(spec.base_url, spec.api_key or NO_KEY, spec.model, bool(spec.disable_thinking))
    own_url = _with_version(kind, environment.get(kind.url_variable) or kind.base_url)
    base_url = _with_version(kind, spec.base_url) or own_url
    model = spec.model or environment.get(f"{kind.prefix}_MODEL") or kind.model
    if not base_url:
        raise ValueError(
            f'endpoint "{spec.endpoint}" needs {kind.url_variable} on the server, or the argument base_url'
        )
    own_key = environment.get(f"{kind.prefix}_API_KEY") if base_url == own_url else None
    key = spec.api_key or own_key or kind.api_key
    if not key:
        raise ValueError(
            f'endpoint "{spec.endpoint}" needs {kind.prefix}_API_KEY on the server, or the argument api_key'
            + (" (the server's key is not sent to another base_url)" if base_url != own_url else "")
        )
    thinking_off = kind.disable_thinking if spec.disable_thinking is None else spec.disable_thinking
    return _checked(base_url, key, model, thinking_off)


def _with_version(kind: _Kind, base_url: str) -> str:
    """The URL with the /v1 that users of OpenEnv's own catalog leave out; vLLM serves nothing beside it."""
    base_url = base_url.rstrip("/")
    path = base_url.partition("://")[2].partition("/")[2]
    lacks = bool(base_url) and (not path or (kind.always_v1 and not base_url.endswith("/v1")))
    return f"{base_url}/v1" if lacks else base_url


def _checked(base_url: str, api_key: str, model: str, disable_thinking: bool) -> ModelEndpoint:
    # Without the URL: it may be the server's own.
    try:
        parts = urlsplit(base_url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("base_url is not an http or https URL, such as http://127.0.0.1:8000/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("base_url holds more than scheme, host, port and path: a key is given as api_key")
    if any(character in api_key for character in "\r\n\0"):
        raise ValueError("api_key holds a line break, which no HTTP header may")
    if not api_key.isascii():
        raise ValueError("api_key holds a character that no HTTP header may")
    return ModelEndpoint(base_url.rstrip("/"), api_key, model, disable_thinking)


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


def client_of(spec: RolloutSpec, endpoint: ModelEndpoint, variable: str) -> EvalClientConfig | TrainClientConfig:
    """The client of a rollout, whose key is in the environment variable `variable`; a `ValueError` where there is no
    such renderer, or it would run code of a repository that the caller names."""
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


def sampling_of(spec: RolloutSpec, endpoint: ModelEndpoint) -> SamplingConfig:
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
