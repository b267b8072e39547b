"""The verdict of the rules as the host sees it, whether a worker or a sandbox gave it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollout_sandbox.toolbox.scoring import ScoringError


@dataclass(frozen=True)
class RulesResult:
    """What math-verify and the rules around it say about one answer."""

    right: bool
    reason: str
    """As in `mathverdict.verdict.Verdict`, or "timed_out", "crashed" (verifying broke down over it), or why there is no
    usable answer."""
    answer: str = ""
    conflicting: bool = False
    seconds: float = 0.0
    waited: float = 0.0
    """Seconds before there was a place for it."""


def rules_result(reply: Mapping[str, Any]) -> RulesResult:
    """The result in a worker's reply; a `ScoringError` if the reference is empty."""
    if reply.get("no_reference"):
        raise ScoringError("the task's reference answer is empty: fix the row, or its answer_key")
    verdict = reply["verdict"]
    return RulesResult(
        bool(verdict["right"]),
        str(verdict["reason"]),
        str(verdict["answer"]),
        bool(verdict["conflicting"]),
        float(reply.get("seconds", 0.0)),
    )
