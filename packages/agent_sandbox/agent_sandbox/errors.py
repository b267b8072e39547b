"""What keeps the work in a sandbox from giving a verdict: never a score."""

import verifiers.v1 as vf


class ScoringError(vf.TaskError):
    """Scoring could not be done; the message says what to do. Recorded with the stop `scoring_error`."""
