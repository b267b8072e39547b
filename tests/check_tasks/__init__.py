"""Tests of `opencode-check-tasks`."""
