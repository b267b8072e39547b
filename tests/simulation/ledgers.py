"""Ledgers: that of a rollout, an empty one, and a step for it."""

from typing import Any

from opencode_env.cli_agent.traces import AnyTrace
from opencode_simulation.ledger import Ledger, LedgerEntry, LedgerSummary, ledger_of


def played(trace: AnyTrace) -> Ledger:
    """The ledger of a rollout with a world."""
    found = ledger_of(trace.info)
    assert found is not None
    return found


def empty(**summary: Any) -> Ledger:
    """One without a step."""
    return Ledger(summary=LedgerSummary(**{"world": "w", "seed": None, "config": {}, **summary}))


def entry(tool: str, **fields: Any) -> LedgerEntry:
    """A step that shows "there", pays 0.5 and is the first, unless the fields say otherwise."""
    shown = {"step": 1, "arguments": {}, "observation": "there", "info": {}}
    return LedgerEntry(**{**shown, "tool": tool, "reward": 0.5, "terminated": False, "truncated": False, **fields})
