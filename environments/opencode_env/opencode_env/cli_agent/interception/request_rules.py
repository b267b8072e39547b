"""Which model requests a harness sends: its wire formats, the keys and headers of their requests, and how its agent
sends its own history back; the seam at which a harness says so, and no agent's rules themselves.

A harness that knows better says so itself: a `model_requests()` on its configuration returns `ModelRequests`. Lists of
keys hold what agents send; nothing that makes an endpoint fetch, run or remember something, route elsewhere, or sample
otherwise than the seat says. A harness whose agent rewrites what its model sampled says it with an `echo_rules()`.
Without one nothing is restored, and every rewriting is a new branch of the trace.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.types import AssistantMessage

from opencode_env.agents.named import TRANSPORTS

CHAT, RESPONSES, MESSAGES = "/chat/completions", "/responses", "/v1/messages"
"""The wire formats, by the path that a request takes upstream (`Dialect.upstream_path`)."""

_COMMON = {"model", "tools", "tool_choice", "stream", "temperature", "top_p"}
KEYS = {
    CHAT: frozenset(
        _COMMON
        | {"messages", "parallel_tool_calls", "stream_options", "max_tokens", "max_completion_tokens", "stop", "seed"}
        | {"frequency_penalty", "presence_penalty", "response_format", "reasoning_effort", "reasoning", "verbosity"}
        | {"thinking", "enable_thinking", "prompt_cache_key", "store", "user"}
    ),
    RESPONSES: frozenset(
        _COMMON
        | {"input", "instructions", "parallel_tool_calls", "stream_options", "max_output_tokens", "reasoning", "text"}
        | {"include", "store", "truncation", "prompt_cache_key", "client_metadata", "user"}
    ),
    MESSAGES: frozenset(
        _COMMON
        | {"messages", "system", "max_tokens", "top_k", "stop_sequences", "thinking", "metadata", "output_config"}
        | {"context_management", "cache_control"}
    ),
}
"""Top-level keys of a request that go upstream, by wire format."""

CHAT_MESSAGE_KEYS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "reasoning_details"}
    | {"refusal", "function_call", "cache_control"}
)
"""Keys of a chat message that go upstream."""

HEADERS = {
    CHAT: frozenset[str](),
    RESPONSES: frozenset({"openai-beta"}),
    MESSAGES: frozenset({"anthropic-beta", "anthropic-version"}),
}
"""Headers that ask for a wire format's features, by wire format."""

_TRANSPORTS = {"chat_completions": CHAT, "responses": RESPONSES, "anthropic_messages": MESSAGES}


@dataclass(frozen=True)
class ModelRequests:
    """Holds what a harness sends to the model endpoint."""

    formats: frozenset[str] = frozenset()
    """Wire formats, as upstream paths; empty = the one of the rollout's first call."""
    extra: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Further keys, each with the values that the user configured."""
    message_keys: frozenset[str] = frozenset()
    """Further keys of chat messages."""
    headers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Further headers by lower-case name, each with the values that the user configured."""

    def passes(self, key: str, value: Any) -> bool:
        """Whether the user configured this value for a key that no list holds."""
        return key in self.extra and _covered(value, self.extra[key])


def _covered(value: Any, configured: tuple[Any, ...]) -> bool:
    """Whether a value is a configured one, or an object merged of several."""
    if any(type(value) is type(one) and value == one for one in configured):
        return True
    if not isinstance(value, dict):
        return False
    parts = [one for one in configured if isinstance(one, Mapping)]
    return bool(parts) and all(_covered(v, tuple(one[k] for one in parts if k in one)) for k, v in value.items())


def model_requests(config: HarnessConfig | None) -> ModelRequests:
    """Return what the harness of a configuration sends."""
    own = getattr(config, "model_requests", None)
    if own is not None:
        found: ModelRequests = own()
        return found
    choice = getattr(config, "transport", None) or getattr(config, "dialect", None)
    name = (config.id if config is not None else "").replace("-", "_")
    wire_format = _TRANSPORTS.get(str(choice)) or _TRANSPORTS.get(TRANSPORTS.get(name, ""))
    return ModelRequests(frozenset({wire_format}) if wire_format else frozenset())


Wire = Mapping[str, Any]
"""A chat message as it stands in a request."""


class EchoRules(Protocol):
    """Tells what one agent makes of its model's answers when it sends them back."""

    @property
    def conversation_header(self) -> str:
        """The request header that names the conversation of a call."""

    @property
    def side_agents(self) -> frozenset[str]:
        """Return who speaks in a conversation with a system prompt and tools of their own, as its calls' keys name
        them."""

    def recognise(self, sampled: AssistantMessage, echo: Wire) -> Sequence[str] | None:
        """The sampled ids of the echo's calls, in their order there; None when it is not an echo of that answer."""

    def leaves_out(self, sampled: AssistantMessage) -> bool:
        """Whether an answer is missing from the history."""

    def stands_in(self, echo: Wire) -> bool:
        """Whether a message is what the agent may put in the place of an answer that it leaves out."""

    def says_once(self, message: AssistantMessage) -> bool:
        """Whether these are the agent's own words at the end of one request, missing from the next."""


def echo_rules(config: HarnessConfig | None) -> EchoRules | None:
    """The rules of a configuration's agent, if there are any."""
    own = getattr(config, "echo_rules", None)
    found: EchoRules | None = None if own is None else own()
    return found
