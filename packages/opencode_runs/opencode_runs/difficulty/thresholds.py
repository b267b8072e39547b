"""The three bands of difficulty and their ends."""

from dataclasses import dataclass
from enum import StrEnum

from opencode_runs.traces.errors import BadInputError


class Band(StrEnum):
    """Where a row's difficulty lies; the medium band has both its ends, as the taskset's filter does."""

    HARD = "hard"
    """Below the medium band."""
    MEDIUM = "medium"
    EASY = "easy"
    """Above the medium band."""
    UNRATED = "unrated"
    """No difficulty is known (null or NaN)."""


@dataclass(frozen=True)
class Thresholds:
    """The ends of the medium band, both part of it."""

    low: float = 0.2
    high: float = 0.8

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise BadInputError(f"--hard-below {self.low:g} is above --easy-above {self.high:g}: swap them")

    def band(self, reward: float | None) -> Band:
        if reward is None:
            return Band.UNRATED
        if reward < self.low:
            return Band.HARD
        return Band.EASY if reward > self.high else Band.MEDIUM

    def describe(self, band: Band) -> str:
        conditions = (f"< {self.low:g}", f"{self.low:g} to {self.high:g}", f"> {self.high:g}", "no value")
        return dict(zip(Band, conditions, strict=True))[band]
