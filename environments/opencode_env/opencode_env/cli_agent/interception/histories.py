"""The histories of a server's sessions, for those whose agent says how it sends its history back."""

from typing import Any

from opencode_rubrics.verifiers_versions import index_nodes
from verifiers.v1.dialects import ChatDialect, Dialect
from verifiers.v1.session import RolloutSession

from opencode_env.cli_agent.interception.conversations import OwnNodes
from opencode_env.cli_agent.interception.echo_rules import EchoRules
from opencode_env.cli_agent.interception.forks import Forks
from opencode_env.cli_agent.interception.history import History
from opencode_env.cli_agent.interception.restoring_dialect import restoring


class Histories:
    """Keeps them by trace, from `open` to `close` of a session."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[History, Forks]] = {}

    def open(self, session: RolloutSession, rules: EchoRules | None) -> None:
        """Restore the histories of a session's requests from here on."""
        if rules is None:
            return
        index_nodes(session.trace, ChatDialect, OwnNodes(session.trace.nodes))
        self._open[session.trace.id] = History(session, rules), Forks(session.trace)

    def close(self, session: RolloutSession | None) -> None:
        """Keep nothing of a session."""
        if session is not None:
            self._open.pop(session.trace.id, None)

    def reading(self, session: RolloutSession | None, dialect: Dialect[Any]) -> Dialect[Any]:
        """The dialect that reads one request of a session."""
        kept = self._open.get(session.trace.id) if session is not None else None
        return dialect if kept is None else restoring(dialect, kept[0])

    def committed(self, session: RolloutSession, node: int | None) -> None:
        """Take up the answer of the request that is served here."""
        kept = self._open.get(session.trace.id)
        if kept is not None and node is not None:
            kept[0].committed(node)
            kept[1].committed(node)
