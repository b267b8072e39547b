"""Verifying mathematics: the verdict, the host's worker pool, and the scorer that runs inside a sandbox."""
