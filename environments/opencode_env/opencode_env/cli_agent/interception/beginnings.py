"""What the conversations of an agent's own program began with, and stay with.

Invariant: a request of the own program goes on with the system messages and the tools of the first request of its
conversation, whatever the agent made of the files that the program reads, in this run of it or for a later one. Calls
without the mark neither set a beginning nor are held to one.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from pydantic_core import from_json, to_json

_CONVERSATIONS = 100


class Beginnings:
    """Holds one rollout's conversations to how they began; the program's `side_agents` have a system prompt and tools
    of their own in any."""

    def __init__(self, side_agents: frozenset[str]) -> None:
        self._side_agents = side_agents
        self.first: str | None = None
        """The conversation of the first marked call, which comes before any program of the agent can run."""
        self._known: dict[str, dict[str, tuple[bytes, bytes]]] = {}
        """By conversation and agent the system messages and the tools, as JSON."""

    def hold(self, body: dict[str, Any], conversation: str, agent: str) -> bool:
        """Give the body of a chat request that bears the own program's mark, in place, what the conversation that it
        names began with, where that `agent` of the program's speaks; returns whether it had others."""
        self.first = self.first or conversation
        if conversation not in self._known and len(self._known) >= _CONVERSATIONS:
            return False
        begun, found = self._known.setdefault(conversation, {}), (to_json(_system(body)), to_json(body.get("tools")))
        if agent not in begun and agent not in self._side_agents:
            agent = next((name for name in begun if name not in self._side_agents), agent)
        kept = begun.setdefault(agent, found)
        if kept == found:
            return False
        body["messages"][: len(_system(body))] = from_json(kept[0])
        tools = from_json(kept[1])
        body.pop("tools", None)
        if tools is not None:
            body["tools"] = tools
        return True


def _system(body: Mapping[str, Any]) -> list[Any]:
    return list(takewhile(lambda message: message.get("role") == "system", body["messages"]))
