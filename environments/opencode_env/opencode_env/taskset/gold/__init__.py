"""The right solution of a task: found in its row or directory, applied without an agent, and scored."""
