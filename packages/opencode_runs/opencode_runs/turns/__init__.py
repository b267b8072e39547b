"""Kept turns: turns of rollouts that can be gone back to."""
