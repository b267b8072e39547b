"""Counts a trace's forks: the branches beyond one for each conversation, and why there are any.

Invariant: a conversation that only grows has none. What calls without a conversation of their own are (those of the
agent's programs) are conversations of one call each.
"""

import logging
from typing import Any

from verifiers.v1.trace import Trace

from opencode_env.cli_agent.interception.conversations import current_conversation
from opencode_env.cli_agent.interception.first_difference import first_difference

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")

RECORD = "history"
"""Key in a trace's `info` with the number of forks and the first of them; absent when there are none."""

_SHOWN = 10


def history_forks(trace: Trace[Any, Any, Any]) -> float:
    """How many forks a trace has."""
    return float(trace.info.get(RECORD, {}).get("forks", 0))


class Forks:
    """Notices the forks of one trace as its answers are committed."""

    def __init__(self, trace: Trace[Any, Any, Any]) -> None:
        self._trace = trace
        self._leaves: dict[str, list[int]] = {}
        """The last answers of each conversation's branches, the newest last."""

    def committed(self, node: int) -> None:
        """Take up an answer of the request that is served here."""
        conversation = current_conversation()
        if conversation is None:
            return
        leaves = self._leaves.setdefault(conversation, [])
        extended = self._last_on_the_way(node, frozenset(leaves))
        if extended is not None:
            leaves.remove(extended)
        elif leaves:
            self._note(conversation, leaves[-1], node)
        leaves.append(node)

    def _last_on_the_way(self, node: int, wanted: frozenset[int]) -> int | None:
        here = self._trace.nodes[node].parent if wanted else None
        while here is not None and here not in wanted:
            here = self._trace.nodes[here].parent
        return here

    def _note(self, conversation: str, old: int, new: int) -> None:
        record = self._trace.info.setdefault(RECORD, {"forks": 0, "first": []})
        record["forks"] += 1
        if len(record["first"]) >= _SHOWN:
            return
        found = first_difference(self._trace.nodes, self._path(old), self._path(new))
        record["first"].append({"conversation": conversation, **found})
        logger.warning(
            "the history of a conversation changed: id=%s conversation=%s message %s from turn %s on: %s",
            self._trace.id,
            conversation,
            found["message"],
            found["turn"],
            found["how"],
        )

    def _path(self, node: int) -> list[int]:
        path: list[int] = []
        here: int | None = node
        while here is not None:
            path.append(here)
            here = self._trace.nodes[here].parent
        return path[::-1]
