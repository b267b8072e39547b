"""Kept turns: keeping them while a rollout runs, and continuing a rollout from one."""
