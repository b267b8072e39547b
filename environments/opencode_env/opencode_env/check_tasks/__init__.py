"""Checks of tasks without an agent: untouched 0, gold 1, the same each time, and nothing of it in the agent's sight."""
