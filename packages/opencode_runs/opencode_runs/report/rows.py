"""The list of a run's rollouts: a small row for each try, by which the page filters, sorts and counts."""

from collections import Counter
from typing import Any

from opencode_runs.difficulty.attempt import Attempt, tries
from opencode_runs.report.record import ShownEpisode, ShownTrace
from opencode_runs.trainable.figures import TraceFigures

HEAD = 160
"""Characters of the last answer that are searched without opening the rollout."""
PHASES = ("boot", "setup", "agent", "finalize", "scoring")


def rows(episode: ShownEpisode, figures: list[TraceFigures], run: int) -> list[dict[str, Any]]:
    """A row for each try of the episode, as `opencode-difficulty` tells tries and outcomes."""
    by_trace = {id(trace): found for trace, found in zip(episode.traces, figures, strict=True)}
    found = []
    for trace, outcome in tries(episode):
        row: dict[str, Any] = {
            "run": run, "episode": episode.id, "id": episode.id, "key": episode.task,
            "task": episode.task_id or episode.task_name or episode.prompt or episode.task, "prompt": episode.prompt,
            "errors": [error.type for error in episode.errors], "env": episode.env,
        }  # fmt: skip
        if isinstance(outcome, Attempt):
            row |= {"outcome": "timeout" if outcome.timed_out else "ok", "counts": "attempt", "reward": outcome.reward}
        else:
            counts = "unscored" if outcome.unscored else "error"
            row |= {"outcome": outcome.cause, "counts": counts, "reward": None}
        if trace is not None:
            assert isinstance(trace, ShownTrace)
            row |= _of_trace(episode, trace, by_trace[id(trace)])
        found.append(row)
    return found


def _of_trace(episode: ShownEpisode, trace: ShownTrace, figures: TraceFigures) -> dict[str, Any]:
    subs = [other for other in episode.traces if other is not trace]
    spans = {phase: span for phase in PHASES if (span := trace.span(phase))}
    return {
        "id": trace.id or episode.id, "model": trace.model, "stop": trace.stop_condition, "turns": trace.turns,
        "tokens": trace.num_total_tokens, "errors": [error.type for error in trace.errors],
        "tools": _tool_calls(trace), "last": _last_words(trace), "trace": figures,
        "times": {phase: round(end - start, 3) for phase, (start, end) in spans.items()}
        | {"model": round(trace.model_seconds, 3)},
        "start": min((start for start, _ in spans.values()), default=None),
        "subs": sum(other.turns for other in subs), "findings": sorted(figures.findings),
        "forks": figures.forks, "branch": trace.branch.model_dump() if trace.branch else None,
    }  # fmt: skip


def _tool_calls(trace: ShownTrace) -> dict[str, int]:
    """Calls by tool that the model made, each once."""
    counts: Counter[str] = Counter()
    for node in trace.nodes:
        if node.sampled and isinstance(node.message, dict):
            for call in node.message.get("tool_calls") or ():
                name = call.get("name") if isinstance(call, dict) else None
                counts[str(name)[:80]] += 1
    return dict(counts.most_common())


def _last_words(trace: ShownTrace) -> str:
    for node in reversed(trace.nodes):
        if node.sampled and isinstance(node.message, dict) and isinstance(node.message.get("content"), str):
            return " ".join(node.message["content"][: 10 * HEAD].split())[:HEAD]
    return ""
