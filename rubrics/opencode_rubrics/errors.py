"""What keeps a rubric from giving a verdict: never a score."""

from agent_sandbox.toolbox.scoring import ScoringError as ScoringError


class JudgeError(ScoringError):
    """The judge gave no verdict: unreachable, refused, cut off, or not to be understood."""
