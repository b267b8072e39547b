"""How an agent sends its own history back: the seam at which an agent says so, and no agent's rules themselves.

A harness whose agent rewrites what its model sampled says it with an `echo_rules()` on its configuration. Without one
nothing is restored, and every rewriting is a new branch of the trace.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.types import AssistantMessage

Wire = Mapping[str, Any]
"""A chat message as it stands in a request."""


class EchoRules(Protocol):
    """What one agent makes of its model's answers when it sends them back."""

    @property
    def conversation_header(self) -> str:
        """The request header that names the conversation of a call."""

    @property
    def side_agents(self) -> frozenset[str]:
        """Who speaks in a conversation with a system prompt and tools of their own, as its calls' keys name them."""

    def recognise(self, sampled: AssistantMessage, echo: Wire) -> Sequence[str] | None:
        """The sampled ids of the echo's calls, in the order that they have there; None when it is not an echo of that
        answer."""

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
