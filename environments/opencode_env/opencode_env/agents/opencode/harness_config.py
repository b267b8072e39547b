"""`OpenCodeHarnessConfig`: every knob of the OpenCode program, under `--env.<seat>.harness.*`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, FiniteFloat, PositiveInt, field_validator
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.configs.harness import HarnessConfig, PinnedVersion

from opencode_env.agents.opencode.builds import DEFAULT_VERSION
from opencode_env.agents.opencode.echo import OpenCodeEcho
from opencode_env.cli_agent.interception.request_rules import CHAT, MESSAGES, RESPONSES, EchoRules, ModelRequests
from opencode_env.cli_agent.interception.window import LimitName
from opencode_env.cli_agent.outcome_rule import Patience

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
    """Which OpenCode runs, how it reaches the sandbox, and what it is told."""

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
    download_url: str | None = None
    """Template of a gzipped tar archive with the file `opencode`, with `{version}` and `{package}`, for `download` to
    fetch instead of the package; ripgrep is uploaded then."""
    download_sha256: str | None = None
    """SHA-256 of the program `opencode` in that archive; None takes the pinned one. A version that is not pinned
    needs it, else the binary is uploaded instead (`auto`) or the run refused (`download`)."""

    disabled_tools: list[str] | None = Field(default_factory=lambda: ["question", "task"])
    """Built-in tools the model does not get: nobody answers a `question`; `task` starts sub-agents."""
    system_prompt: str | None = None
    """Text for the agent's system prompt; None keeps OpenCode's own unchanged."""
    system_prompt_mode: Literal["append", "replace"] = "append"
    """Whether `system_prompt` follows OpenCode's own or stands in its place. OpenCode adds a short description of
    the working directory either way."""
    task_system_prompt: str = ""
    """Text appended to the system prompt of every task, before the task's own `TaskData.system_prompt`."""
    sorted_search: bool = True
    """Whether `grep` and `glob` list files in the order of their paths. As OpenCode calls ripgrep they come in another
    order each time, and beyond 100 hits other files: two rollouts of a group then see different things for one call.
    Sorted, ripgrep works with one thread. An `rg` in the agent's own commands is not changed."""
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
    what fits behind its prompt then. None: it is sent as it is, 32,000 without `--sampling.max-tokens`."""
    answer_limit_name: LimitName = "auto"
    """Under which name a chat endpoint is sent the answer's limit. `auto`: `max_tokens`, and `max_completion_tokens`
    once the endpoint has refused that."""
    disable_compaction: bool = True
    """Never summarise the history: a full context window then ends the rollout as `max_total_tokens`."""
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
    """Host directory for each rollout's whole OpenCode log, `<trace id>.log`; None keeps only the tail."""
    log_tail: int = Field(4000, ge=0)
    """Bytes of OpenCode's log kept on the trace."""

    def model_requests(self) -> ModelRequests:
        """What OpenCode sends to the model endpoint, for the gateway on the path there."""
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

    def patience(self) -> Patience:
        """How long OpenCode puts up with a failing endpoint: six sends, in about 70 s, or of 10 minutes each where the
        endpoint is silent."""
        return Patience(sends=6, seconds=min(self.provider_timeout, 3600.0))

    def echo_rules(self) -> EchoRules:
        """What OpenCode makes of its model's answers when it sends them back."""
        return OpenCodeEcho()

    @field_validator("version")
    @classmethod
    def _one_release(cls, value: str) -> str:
        if not value[:1].isdigit():
            raise ValueError(f"must name one release, such as {DEFAULT_VERSION}; {value!r} changes with time")
        return value

    @field_validator("mirror", "download_url")
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
