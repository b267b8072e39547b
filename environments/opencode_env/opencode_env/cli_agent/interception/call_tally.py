"""What one seat's calls of a rollout used, kept up to date call by call so that asking costs nothing.

Invariant: the token counts equal verifiers' own (`Trace.num_input_tokens`, `num_output_tokens`, `num_total_tokens`),
which walk every branch and would make a thousand calls quadratic.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from verifiers.v1.graph import MessageNode
from verifiers.v1.session import RolloutLimits
from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.traces import lineage

_TOKEN_LIMITS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")


@dataclass
class CallTally:
    """Counts of the calls on one trace."""

    turns: int = 0
    """Calls that were answered."""
    errors: int = 0
    """Calls that failed or were refused."""
    prompt_tokens: int = 0
    """Tokens of all prompts, a conversation's history each time it was sent."""
    completion_tokens: int = 0
    seconds: float = 0.0
    """Time at the model endpoint, summed over calls."""
    new_input_tokens: int = 0
    """Tokens of the prompts, a conversation's history once: what `max_input_tokens` caps."""
    _totals: dict[int, int] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)
    """The most that one answered call has used of each budget."""

    @property
    def calls(self) -> int:
        """All calls: answered, failed, refused."""
        return self.turns + self.errors

    def add(self, call: ModelCall, nodes: list[MessageNode]) -> None:
        """Count one recorded call of the trace with these nodes."""
        if call.node is None:
            self.errors += 1
        else:
            self.turns += 1
        self.seconds += call.time.duration
        if call.usage is None:
            return
        self.prompt_tokens += call.usage.input_tokens
        self.completion_tokens += call.usage.completion_tokens
        new = 0
        if call.node is not None:
            before = lineage(nodes, nodes[call.node].parent)
            previous = next((self._totals.get(node, 0) for node in before if nodes[node].sampled), 0)
            new = max(0, call.usage.input_tokens - previous)
            self.new_input_tokens += new
            self._totals[call.node] = call.usage.total_tokens
        used = (new, call.usage.completion_tokens, new + call.usage.completion_tokens)
        for name, tokens in zip(_TOKEN_LIMITS, used, strict=True):
            self._largest[name] = max(self._largest.get(name, 0), tokens)

    def _used(self) -> dict[str, int]:
        return {
            "max_turns": self.turns,
            "max_input_tokens": self.new_input_tokens,
            "max_output_tokens": self.completion_tokens,
            "max_total_tokens": self.new_input_tokens + self.completion_tokens,
        }

    def reached(self, limits: RolloutLimits) -> str | None:
        """The name of the first of the seat's limits that is used up."""
        return self._first(limits, self._used())

    def room(self, limits: RolloutLimits, active: int) -> bool:
        """Whether the seat's limits leave room for one more call when each of `active` calls takes a turn and as many
        tokens as the largest so far; before the first one is answered, what it takes of a token budget is unknown."""
        unknown = not self._largest and self._first(limits, dict.fromkeys(_TOKEN_LIMITS, math.inf)) is not None
        reserved = {name: used + active * self._largest.get(name, 0) for name, used in self._used().items()}
        return not unknown and self._first(limits, reserved | {"max_turns": self.turns + active}) is None

    @staticmethod
    def _first(limits: RolloutLimits, used: Mapping[str, float]) -> str | None:
        for name, value in used.items():
            cap = getattr(limits, name)
            if cap is not None and value >= cap:
                return name
        return None
