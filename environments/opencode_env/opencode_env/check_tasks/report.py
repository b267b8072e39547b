"""What the check of one task found."""

from typing import Literal, Protocol

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
    """What of the infrastructure failed, so that nothing is known; tried again when the check is resumed."""
    untouched: list[float] = []
    gold: list[float] = []
    seconds: float = 0.0


class Check(Protocol):
    """The check of one task; a task that is not checked in a sandbox makes its own (`own_check(repeats, gold)`)."""

    findings: list[Finding]
    untouched: list[float]
    """The reward of each attempt that did nothing."""
    gold: list[float]
    """The reward of each attempt with the right solution."""

    async def run(self) -> None:
        """Do all of it."""
