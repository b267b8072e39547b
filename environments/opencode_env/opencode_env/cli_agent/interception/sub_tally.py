"""What the sub calls of one rollout used, kept up to date call by call so that asking costs nothing.

Invariant: the token counts equal verifiers' own (`Trace.num_input_tokens`, `num_output_tokens`, `num_total_tokens`),
which walk every branch and would make a thousand calls quadratic.
"""

from dataclasses import dataclass, field

from verifiers.v1.graph import MessageNode
from verifiers.v1.session import RolloutLimits
from verifiers.v1.trace import ModelCall


@dataclass
class SubTally:
    """Counts of one rollout's sub calls."""

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

    @property
    def calls(self) -> int:
        """All sub calls: answered, failed, refused."""
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
        if call.node is not None:
            before = self._totals.get(_previous_turn(call.node, nodes), 0)
            self.new_input_tokens += max(0, call.usage.input_tokens - before)
            self._totals[call.node] = call.usage.total_tokens

    def reached(self, limits: RolloutLimits) -> str | None:
        """The name of the first of the seat's limits that is used up."""
        used = {
            "max_turns": self.turns,
            "max_input_tokens": self.new_input_tokens,
            "max_output_tokens": self.completion_tokens,
            "max_total_tokens": self.new_input_tokens + self.completion_tokens,
        }
        for name, value in used.items():
            cap = getattr(limits, name)
            if cap is not None and value >= cap:
                return name
        return None


def _previous_turn(node: int, nodes: list[MessageNode]) -> int:
    """The nearest sampled ancestor of a node, or -1."""
    parent = nodes[node].parent
    while parent is not None and not nodes[parent].sampled:
        parent = nodes[parent].parent
    return -1 if parent is None else parent
