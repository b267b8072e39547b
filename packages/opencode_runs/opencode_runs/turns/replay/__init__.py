"""Saved rollouts played again through the environment; of the extra `replay`, as it imports opencode-env."""
