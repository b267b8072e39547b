"""Metrics of one OpenCode rollout beside those of every agent."""

from opencode_env.cli_agent.interception.forks import history_forks
from opencode_env.cli_agent.traces import AnyTrace, tool_counts
from opencode_env.opencode.harness_config import BUILT_IN_TOOLS


def tool_metrics(trace: AnyTrace) -> dict[str, float]:
    """How often the model called each of OpenCode's own tools, all present in every rollout."""
    counts = tool_counts(trace)
    return {f"{tool}_calls": float(counts[tool]) for tool in BUILT_IN_TOOLS}


def rollout_metrics(trace: AnyTrace) -> dict[str, float]:
    """The tool counts, and how often the history of a conversation changed."""
    return {**tool_metrics(trace), "history_forks": history_forks(trace)}
