"""The suite's taskset under an id of its own; this directory is on the PYTHONPATH of the suite's runs."""

from opencode_env.conformance.taskset import ConformanceTaskset

__all__ = ["ConformanceTaskset"]
