"""The histories of a server's sessions, for those whose agent says how it sends its history back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent_sandbox.verifiers_versions import index_nodes
from verifiers.v1.dialects import ChatDialect, Dialect
from verifiers.v1.session import RolloutSession

from opencode_env.cli_agent.interception.conversations import OwnNodes
from opencode_env.cli_agent.interception.forks import Forks
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.interception.history import History
from opencode_env.cli_agent.interception.own_calls import is_by_program
from opencode_env.cli_agent.interception.restoring_dialect import restoring


class Histories:
    """Keeps them by trace, from `open` to `close` of a session."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[History, Forks]] = {}

    def open(self, session: RolloutSession, gateway: Gateway) -> None:
        """Restore the histories of a session's requests from here on, if the agent behind the gateway says how."""
        if gateway.echoes is None:
            return
        index_nodes(session.trace, ChatDialect, OwnNodes(session.trace.nodes))
        self._open[session.trace.id] = History(session, gateway.echoes, gateway.note_ghosts), Forks(session.trace)

    def close(self, session: RolloutSession | None) -> None:
        """Keep nothing of a session."""
        if session is not None:
            self._open.pop(session.trace.id, None)

    @contextmanager
    def reading(self, session: RolloutSession | None, dialect: Dialect[Any], body: bytes) -> Iterator[Dialect[Any]]:
        """The dialect that reads one request of a session, with that body, while it is served.

        What the agent's programs ask has no history of its own, and is read as it came.
        """
        kept = self._open.get(session.trace.id) if session is not None else None
        if kept is None or is_by_program():
            yield dialect
            return
        with kept[0].asked.serving(body):
            yield restoring(dialect, kept[0])

    def committed(self, session: RolloutSession, node: int | None) -> None:
        """Take up the answer of the request that is served here."""
        kept = self._open.get(session.trace.id)
        if kept is not None and node is not None and not is_by_program():
            kept[0].asked.committed(node)
            kept[1].committed(node)
