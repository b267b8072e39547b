"""The `opencode.json` of one rollout, built by one pure function.

Invariant: the text is handed over as a file that no shell ever sees, and no brace in any value can be taken for one
of OpenCode's own `{env:…}` or `{file:…}` substitutions, which it applies to the raw text of a configuration file.
"""

import json
from collections.abc import Mapping
from typing import Any

from opencode_env.agents.opencode.harness_config import OpenCodeHarnessConfig

PROVIDER = "intercepted"
"""Name of the only provider that OpenCode knows during a rollout."""

STATE_VARIABLE = "OPENCODE_ENV_STATE"
"""Environment variable with the rollout's state directory; the one substitution that the configuration uses."""

HEADER_SECONDS = 600.0
CHUNK_SECONDS = 60.0
"""How long OpenCode waits for the head of an answer, and for more of it, before it takes the connection for dead and
sends the call again, where that is one call by its key. The interception sends the head within a minute of taking a
call up and something every few seconds from then on; only a call that waits for a place is silent for longer."""

_PERMISSIONS = {"*": "allow", "external_directory": {"*": "allow"}, "doom_loop": "allow", "read": {"*": "allow"}}
"""Every permission decided, so that nothing can wait for an answer. The last matching rule wins in OpenCode."""

_STATE_MARK = "\ue000state\ue000"

STATE_URL = f"file://{_STATE_MARK}"
"""URL of the state directory inside a configuration that `render_config` renders."""


def build_config(
    config: OpenCodeHarnessConfig,
    *,
    model: str,
    endpoint: str,
    secret: str,
    mcp_servers: Mapping[str, str],
    mcp_headers: Mapping[str, Mapping[str, str]] | None = None,
    repeats: bool = False,
    images: bool = True,
) -> dict[str, Any]:
    """OpenCode's configuration for one rollout.

    Args:
        config: the harness configuration; its `opencode_config` is merged last.
        model: name of the model that OpenCode is shown.
        endpoint: base URL of the interception, ending in `/v1`, as seen from the sandbox.
        secret: bearer token of this rollout.
        mcp_servers: URL of each remote tool server by name.
        mcp_headers: HTTP headers for them, by server name.
        repeats: whether the interception knows a call that is sent again by its key.
        images: whether the model can be shown images; OpenCode otherwise says to it that it cannot.
    """
    agent: dict[str, Any] = {"tools": dict.fromkeys(config.disabled_tools or [], False)}
    if config.system_prompt is not None and config.system_prompt_mode == "replace":
        agent["prompt"] = config.system_prompt
    built: dict[str, Any] = {
        "model": f"{PROVIDER}/{model}",
        "small_model": f"{PROVIDER}/{model}",
        "enabled_providers": [PROVIDER],
        "provider": {PROVIDER: _provider(config, model, endpoint, secret, repeats, images)},
        "plugin": [[f"{STATE_URL}/plugin.js", {"repeats": repeats, "sorted": config.sorted_search}]],
        "agent": {"title": {"disable": True}, "build": agent},
        "permission": _PERMISSIONS,
        "compaction": {"auto": not config.disable_compaction, "prune": False},
        "mcp": {
            name: {
                "type": "remote",
                "url": url,
                "headers": dict((mcp_headers or {}).get(name, {})),
                "timeout": _milliseconds(config.tool_timeout),
                "oauth": False,
                "enabled": True,
            }
            for name, url in mcp_servers.items()
        },
        "experimental": {"mcp_timeout": _milliseconds(config.tool_timeout)},
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
        "lsp": False,
        "formatter": False,
    }
    return merge(built, config.opencode_config)


def _provider(
    config: OpenCodeHarnessConfig, model: str, endpoint: str, secret: str, repeats: bool, images: bool
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": model,
        "attachment": images,
        "tool_call": True,
        "modalities": {"input": ["text", "image"] if images else ["text"], "output": ["text"]},
    }
    if config.enable_interleaved:
        entry["reasoning"] = True
        entry["interleaved"] = {"field": "reasoning_content"}
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": PROVIDER,
        "options": {
            "baseURL": endpoint,
            "apiKey": secret,
            "timeout": _milliseconds(config.provider_timeout),
            "headerTimeout": _milliseconds(HEADER_SECONDS) if repeats else False,
            "chunkTimeout": _milliseconds(CHUNK_SECONDS) if repeats else False,
        },
        "models": {model: entry},
    }


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, key by key into nested objects; lists and values of `over` replace those of `base`."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def render_config(config: Mapping[str, Any]) -> str:
    """The configuration as JSON text in which only our own reference to the state directory is a substitution."""
    text = json.dumps(config, ensure_ascii=True)
    # Only braces inside strings may be escaped; a brace that is followed by `env:` or `file:` can only be one.
    for word in ("env:", "file:"):
        text = text.replace("{" + word, "\\u007b" + word)
    return text.replace("\\ue000state\\ue000", "{env:" + STATE_VARIABLE + "}")
