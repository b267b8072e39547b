"""A role server and a rollout on it."""

from tests.rlm.role_server import rollout, server

__all__ = ["rollout", "server"]
