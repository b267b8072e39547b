"""The options of the OpenCode harness, `--env.<seat>.harness.*`, and the `opencode.json` of a rollout that follows from
them.

That text is handed over as a file that no shell ever sees, and no brace in any value can be taken for one of
OpenCode's own `{env:…}` or `{file:…}` substitutions, which it applies to the raw text of a configuration file.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, FiniteFloat, PositiveInt, field_validator, model_validator
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.configs.harness import HarnessConfig, PinnedVersion

from opencode_env.agents.opencode.builds import DEFAULT_VERSION, SUMMARY_PROMPTS
from opencode_env.agents.opencode.echo import OpenCodeEcho
from opencode_env.cli_agent.interception.gateway import CHAT, MESSAGES, RESPONSES, ModelRequests
from opencode_env.cli_agent.interception.history import EchoRules

_OWN_PACKAGE = "@ai-sdk/openai-compatible"
_FORMATS = {_OWN_PACKAGE: CHAT, "@ai-sdk/openai": RESPONSES, "@ai-sdk/anthropic": MESSAGES}
"""Wire format of a provider package; another package's is that of the rollout's first call."""

_AGENT_KEYS = frozenset(
    {"model", "variant", "temperature", "top_p", "prompt", "tools", "disable", "description", "mode", "hidden"}
    | {"options", "color", "steps", "maxSteps", "permission", "name"}
)
"""Keys of an agent's configuration that mean something to OpenCode; it sends the others to the model."""


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


BUILT_IN_TOOLS = (
    "bash",
    "edit",
    "write",
    "read",
    "grep",
    "glob",
    "skill",
    "todowrite",
    "webfetch",
    "websearch",
    "codesearch",
    "task",
    "question",
)
"""OpenCode's own tools; each has a `<tool>_calls` metric."""


class OpenCodeHarnessConfig(HarnessConfig):
    """Sets which OpenCode runs, how it reaches the sandbox, and what it is told."""

    version: PinnedVersion = DEFAULT_VERSION
    """OpenCode release. Another than the default is checked against the registry's published checksum only."""
    install: Literal["auto", "upload", "download", "image"] = "auto"
    """How the binary reaches the sandbox. `image`: it must be there already. `upload`: from this machine's cache
    (bound into the confined local sandbox, sent packed and in pieces to others). `download`: the sandbox fetches the
    packages itself. `auto`: what is there already, else `upload` for local runtimes and `download` for remote ones, and
    `upload` where that fails."""
    asset_dir: str = "/opencode"
    """Directory inside the sandbox for the programs `opencode` and `rg`; must be absolute."""
    mirror: str | None = None
    """Where sandboxes download from: the address of an npm registry, or of any server that holds its archives under the
    same paths (`PACKAGE/-/NAME-VERSION.tgz`). None = the registry that npm on this machine is configured for."""

    disabled_tools: list[str] | None = Field(default_factory=lambda: ["question", "task"])
    """Built-in tools the model does not get: nobody answers a `question`; `task` starts sub-agents."""
    system_prompt: str | None = None
    """Text for the agent's system prompt; None keeps OpenCode's own unchanged."""
    system_prompt_mode: Literal["append", "replace"] = "append"
    """Whether `system_prompt` follows OpenCode's own or stands in its place. OpenCode adds a short description of
    the working directory either way."""
    task_system_prompt: str = ""
    """Text appended to the system prompt of every task, before the task's own `TaskData.system_prompt`."""
    prompt_model: str | None = None
    """Model name that OpenCode sees: it selects its prompt by family (`gpt`, `claude`, `gemini`, …) and writes the
    name into it. None = the run's model; pin it when the served name changes during training. Requests always go
    to the run's model."""

    images: bool | None = None
    """Whether the model is shown pictures: those of the task, of its user and of tools, such as what `read` reads. A
    model that is shown none is told so where one would stand: an endpoint of text only refuses the whole request. None:
    as the renderer of a training client can; with any other client, in tasks that begin with a picture."""
    context_window: PositiveInt | Literal["auto"] | None = None
    """Tokens of the model's window; `auto`: what the endpoint's list of models says. Each answer's limit is lowered to
    what fits behind its prompt then. None: it is sent as it is, 32,000 without `--sampling.max-tokens`; with compaction
    the same as `auto`."""
    disable_compaction: bool = True
    """Never summarise the history: a full context window then ends the rollout as `max_total_tokens`. With false,
    OpenCode summarises before the window is full where its size is known, and else once a request was refused."""
    window_reserve: PositiveInt | None = None
    """Tokens of a known window that OpenCode keeps free for the next tool results and answer: it summarises once a call
    used the rest. None: a quarter of the window, at most 20,000. Without effect while compaction is disabled."""
    compaction_keeps_task: bool = True
    """Where the history is summarised, what a conversation's user said first stands before each summary, word for word
    and with its pictures, and at the head of what is summarised. A sub-agent's is its own prompt. False: only the
    summaries say it."""
    compaction_prompt: str | None = Field(None, min_length=1)
    """What the model is asked for where the history is summarised; behind it follow the summary before, if there is
    one, and the history as text. None: OpenCode's own words."""
    compaction_gain: FiniteFloat | None = Field(None, ge=0, lt=1)
    """Share of a section's tokens that the summary of it must save. When the first call behind it shows that it saved
    less, the rollout ends before the next one, as `compaction_gain`, and is scored. None: it goes on."""
    compaction_trains: Literal["all", "sections", "last"] = "all"
    """What trains of a conversation that was summarised. `all`: what lies between two summaries, and the summaries.
    `sections`: all but the summaries. `last`: what came behind the last one. The rest is context, and on the trace."""
    enable_interleaved: bool = True
    """Send the model's reasoning back to it in `reasoning_content`."""
    provider_timeout: FiniteFloat = Field(3600.0, gt=0)
    """Seconds that OpenCode waits for one model call as a whole. In our environments it gives up a connection that
    falls silent and sends the call again: after 10 minutes without an answer's head, or one minute in the answer."""
    startup_time: FiniteFloat = Field(180.0, gt=0)
    """Seconds that OpenCode has from its start to its first model call (1 to 3 where a core is free): it sometimes sits
    there for ever. It is then ended and started once more. Without effect outside of our environments."""
    agent_workdir: str = DEFAULT_WORKDIR
    """Directory OpenCode works in unless the task names a `workdir`; created when missing. Must be absolute."""
    opencode_config: dict[str, Any] = Field(default_factory=dict)
    """Further OpenCode configuration (`opencode.json` keys), merged deeply over everything else."""

    log_dir: Path | None = None
    """Host directory for each rollout's whole OpenCode log, `<trace id>.log`; None keeps only the end on the trace."""

    def model_requests(self) -> ModelRequests:
        """Return what OpenCode sends to the model endpoint, for the gateway on the path there."""
        providers = _entries(self.opencode_config, "provider")
        models = [model for provider in providers for model in _entries(provider, "models")]
        packages = {_OWN_PACKAGE, *(str(p["npm"]) for p in providers if "npm" in p)}
        packages |= {str(_object(m, "provider")["npm"]) for m in models if "npm" in _object(m, "provider")}
        known = packages <= _FORMATS.keys()
        extra: dict[str, tuple[Any, ...]] = {}
        for options in _options(self.opencode_config, models):
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

    def echo_rules(self) -> EchoRules:
        """Return what OpenCode makes of its model's answers when it sends them back."""
        return OpenCodeEcho()

    @model_validator(mode="after")
    def _compaction_asks_for_the_window(self) -> "OpenCodeHarnessConfig":
        if not self.disable_compaction and self.context_window is None:
            self.context_window = "auto"
        return self

    @model_validator(mode="after")
    def _reserve_within_window(self) -> "OpenCodeHarnessConfig":
        if isinstance(self.context_window, int) and (self.window_reserve or 0) >= self.context_window:
            raise ValueError(f"window_reserve must be smaller than context_window, {self.context_window} tokens")
        return self

    @field_validator("version")
    @classmethod
    def _one_release(cls, value: str) -> str:
        if not value[:1].isdigit():
            raise ValueError(f"must name one release, such as {DEFAULT_VERSION}; {value!r} changes with time")
        return value

    @field_validator("mirror")
    @classmethod
    def _address_without_credentials(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("must be an http or https address that every sandbox may know, without credentials")
        return value

    @field_validator("asset_dir", "agent_workdir")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/"):
            raise ValueError(f"must be an absolute path inside the sandbox, such as /{value}")
        return value

    @field_validator("disabled_tools")
    @classmethod
    def _known_tools(cls, value: list[str] | None) -> list[str] | None:
        return None if value is None else [name.lower() for name in value]


PROVIDER = "intercepted"
"""Name of the only provider that OpenCode knows during a rollout."""

STATE_VARIABLE = "OPENCODE_ENV_STATE"
"""Environment variable with the rollout's state directory; the one substitution that the configuration uses."""

HEADER_SECONDS = 600.0
CHUNK_SECONDS = 60.0
"""How long OpenCode waits for the head of an answer, and for more of it, before it takes the connection for dead and
sends the call again, where that is one call by its key. The interception sends the head within a minute of taking a
call up and something every few seconds from then on; only a call that waits for a place is silent for longer."""

_MOST_RESERVED = 20_000
"""Tokens of a window that are kept free by default: a result of a tool as long as OpenCode leaves it, and an answer."""

_LONGEST_ANSWER = 32_000
"""Tokens that OpenCode asks for at most."""

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
    window: int | None = None,
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
        window: tokens of the model's window, by which OpenCode plans its compaction; None: it is not known.
    """
    plugin = {"repeats": repeats, "task": config.compaction_keeps_task, "summary": config.compaction_prompt}
    agent: dict[str, Any] = {"tools": dict.fromkeys(config.disabled_tools or [], False)}
    if config.system_prompt is not None and config.system_prompt_mode == "replace":
        agent["prompt"] = config.system_prompt
    built: dict[str, Any] = {
        "model": f"{PROVIDER}/{model}",
        "small_model": f"{PROVIDER}/{model}",
        "enabled_providers": [PROVIDER],
        "provider": {PROVIDER: _provider(config, model, endpoint, secret, repeats, images)},
        "plugin": [[f"{STATE_URL}/plugin.js", plugin]],
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
    if window is not None and not config.disable_compaction:
        reserve = min(config.window_reserve or min(window // 4, _MOST_RESERVED), window - 1)
        built["compaction"]["reserved"] = reserve
        # OpenCode compacts at `input` - `reserved`; without `output` an answer's limit stays what it is.
        limit = {"context": window, "input": window, "output": 0}
        built["provider"][PROVIDER]["models"][model]["limit"] = limit
    return merge(built, config.opencode_config)


def summary_start(built: Mapping[str, Any]) -> float | None:
    """Tokens of a prompt and its answer from which on OpenCode asks for a summary, by its configuration; inf: once a
    call was refused for a full window, None: never."""
    compaction = _object(built, "compaction")
    if not compaction.get("auto", True):
        return None
    provider, _, model = str(built.get("model")).partition("/")
    limit = _object(_object(_object(_object(_object(built, "provider"), provider), "models"), model), "limit")
    longest = min(limit.get("output") or _LONGEST_ANSWER, _LONGEST_ANSWER)
    if not limit.get("context"):
        return math.inf
    size, kept = limit["context"], longest
    if limit.get("input"):
        size, kept = limit["input"], compaction.get("reserved", min(_MOST_RESERVED, longest))
    return max(0.0, float(size - kept))


def is_summary_prompt(config: OpenCodeHarnessConfig, built: Mapping[str, Any], append: str, text: str) -> bool:
    """Whether a system prompt is the one with which OpenCode asks for a summary, by its configuration or its release;
    any is, of a release that we do not know. `append` stands behind each system prompt."""
    own = _object(_object(built, "agent"), "compaction").get("prompt")
    text = text.removesuffix(f"\n{append}").strip() if append else text.strip()
    if own:
        return text == str(own).strip()
    known = SUMMARY_PROMPTS.get(config.version)
    return known is None or hashlib.sha256(text.encode()).hexdigest() == known


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
