"""The errors of scoring, beside those of `rollout_sandbox.errors`.

    ScoringError (rollout_sandbox)
    ├── JudgeError
    └── ScorerLost
    RolloutError (verifiers)
    └── CleanupError
    ReaderError

`TreeError` and `ParserFailed` are of `swe.tree` and `swe.reading`, which also run where verifiers is not.
"""

from rollout_sandbox.errors import ScoringError
from verifiers.v1.errors import RolloutError


class JudgeError(ScoringError):
    """The judge gave no verdict, and none on the reference: unreachable, refused, cut off, or not to be understood."""

    outcome = ScoringError.outcome


class ScorerLost(ScoringError):
    """The scorer started and gave no result: it was killed, or did not finish in time."""


class ReaderError(Exception):
    """The data could not be read within the limits."""


class CleanupError(RolloutError):
    """A cleanup hook failed; `__cause__` is what it raised."""
