"""Tests of `opencode-deepdive` and of its search server."""
