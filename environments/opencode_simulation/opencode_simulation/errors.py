"""What can go wrong with a world, by who did it.

`InvalidAction` is the policy's doing: the agent reads it and nothing changes. Everything else is the infrastructure's
and ends the rollout as an error, never as a reward of 0.
"""

from verifiers.v1.errors import ToolsetError


class InvalidAction(Exception):
    """A tool call that the world refuses: its text is the agent's answer, and the world has not changed."""


class WorldError(ToolsetError):
    """A world failed: it raised, hung, or gave what is not JSON, or its server died."""


class BrokenWorldError(WorldError):
    """A world failed after its agent could act on it. What the agent did may have broken it, so `--env.retries` leaves
    it alone unless a rule says otherwise: else an agent could have a bad episode played again."""


class ToolMismatchError(ToolsetError):
    """The simulation and the production server do not offer the same tools."""


class SignatureMismatchError(ToolsetError):
    """A tool of the simulation takes other parameters than the one of the production server."""
