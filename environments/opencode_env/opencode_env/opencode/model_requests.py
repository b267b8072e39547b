"""What OpenCode sends to the model endpoint: chat completions, and what the user put into its configuration."""

from collections.abc import Iterator, Mapping
from typing import Any

from opencode_env.cli_agent.interception.request_rules import CHAT, MESSAGES, RESPONSES, ModelRequests

_OWN_PACKAGE = "@ai-sdk/openai-compatible"
_FORMATS = {_OWN_PACKAGE: CHAT, "@ai-sdk/openai": RESPONSES, "@ai-sdk/anthropic": MESSAGES}
"""Wire format of a provider package; another package's is that of the rollout's first call."""

_AGENT_KEYS = frozenset(
    {"model", "variant", "temperature", "top_p", "prompt", "tools", "disable", "description", "mode", "hidden"}
    | {"options", "color", "steps", "maxSteps", "permission", "name"}
)
"""Keys of an agent's configuration that mean something to OpenCode; it sends the others to the model."""


def opencode_requests(opencode_config: Mapping[str, Any]) -> ModelRequests:
    """The requests of an OpenCode with these further `opencode.json` keys."""
    providers = _entries(opencode_config, "provider")
    models = [model for provider in providers for model in _entries(provider, "models")]
    packages = {_OWN_PACKAGE, *(str(p["npm"]) for p in providers if "npm" in p)}
    packages |= {str(_object(m, "provider")["npm"]) for m in models if "npm" in _object(m, "provider")}
    known = packages <= _FORMATS.keys()
    extra: dict[str, tuple[Any, ...]] = {}
    for options in _options(opencode_config, models):
        for key, value in options.items():
            extra[key] = (*extra.get(key, ()), value)
    headers: dict[str, frozenset[str]] = {}
    for owner in (*(_object(provider, "options") for provider in providers), *models):
        for name, value in _object(owner, "headers").items():
            headers[name.lower()] = headers.get(name.lower(), frozenset()) | {str(value)}
    return ModelRequests(
        formats=frozenset(_FORMATS[package] for package in packages) if known else frozenset(),
        extra=extra,
        message_keys=frozenset(str(_object(m, "interleaved").get("field", "reasoning_content")) for m in models),
        headers=headers,
    )


def _options(config: Mapping[str, Any], models: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Everything that OpenCode copies into a request as it stands."""
    for model in models:
        yield _object(model, "options")
        yield from _entries(model, "variants")
    for agent in (*_entries(config, "agent"), *_entries(config, "mode")):
        yield _object(agent, "options")
        yield {key: value for key, value in agent.items() if key not in _AGENT_KEYS}


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = parent.get(key)
    return found if isinstance(found, Mapping) else {}


def _entries(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [entry for entry in _object(parent, key).values() if isinstance(entry, Mapping)]
