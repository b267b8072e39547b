"""What the check of one task found."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal[
    "untouched-passes",
    "gold-fails",
    "near-miss-passes",
    "flaky",
    "order-dependent",
    "leak",
    "limits",
    "no-gold",
    "not-looked-at",
    "broken",
]
"""`broken`: its setup or scoring is an error. `not-looked-at`: something of the sandbox could not be searched."""


class Finding(BaseModel):
    """One thing that is wrong with a task."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    told: str


class Report(BaseModel):
    """One task."""

    model_config = ConfigDict(frozen=True)

    key: str
    """The task's identity."""
    hash: str
    """Of its content: a changed task is checked again."""
    options: str
    """Of the check: other options check again."""
    findings: list[Finding] = []
    error: str | None = None
    """What of the machinery failed, so that nothing is known; tried again when the check is resumed."""
    untouched: list[float] = []
    gold: list[float] = []
    seconds: float = 0.0
