"""How far a request's history was found in the trace's graph, and how it reads there and for a chat endpoint."""

from dataclasses import dataclass, field

from opencode_env.cli_agent.interception.chat_protocol import Issued, Message, echo_on_wire, issued_calls
from opencode_env.cli_agent.interception.ghosts import Said


@dataclass
class Restored:
    """The part of a request's history that is in the graph."""

    path: list[int] = field(default_factory=list)
    """The nodes of that part."""
    wire: list[Message | None] = field(default_factory=list)
    """Each of them as a chat endpoint gets it; None where it gets nothing."""
    taken: int = 0
    """How many messages of the request they stand for."""
    owed: list[Issued] = field(default_factory=list)
    """Calls of the newest answer whose results have not come, in the agent's order."""
    ghosts: list[Said] = field(default_factory=list)
    """What the halves of answers said that stand for nothing."""

    @property
    def end(self) -> int | None:
        """The last node."""
        return self.path[-1] if self.path else None

    def result_of(self, echo: Message) -> Issued | None:
        """The call whose result a message is; of several that the agent gave one id, the first."""
        identity = echo.get("tool_call_id")
        return next((call for call in self.owed if call.echoed == identity), None)

    def answer_as_it_came(self, echo: Message) -> Message:
        """An answer for a chat endpoint that is nobody's echo; its calls are owed their results from here on."""
        self.owed = issued_calls(echo, None, valid=False)
        return echo_on_wire(echo, self.owed)

    def result_on_wire(self, echo: Message, issued: Issued | None) -> Message:
        """A message for a chat endpoint; a result is then no longer owed."""
        if issued is None:
            return echo
        self.owed.remove(issued)
        return echo if issued.wire == issued.echoed else {**echo, "tool_call_id": issued.wire}

    def add(self, node: int, wire: Message | None, taken: int = 1) -> None:
        """Go on to a node."""
        self.path.append(node)
        self.wire.append(wire)
        self.taken += taken

    def ahead(self, skipped: int = 0) -> "Restored":
        """A search that goes on from here, behind so many more messages, and leaves this one as it is."""
        return Restored(path=self.path[-1:], taken=self.taken + skipped, owed=list(self.owed))
