"""Writes the dataset back with the figures; the only part that needs opencode-env, for its taskset."""
