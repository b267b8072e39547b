"""The list of a run's rollouts: a small row for each try, by which the page filters, sorts and counts."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from opencode_runs.difficulty.attempt import Attempt, Tries
from opencode_runs.report.cleaning import as_json
from opencode_runs.report.masking import Masker
from opencode_runs.report.record import ShownEpisode, ShownTrace
from opencode_runs.trainable.figures import TraceFigures
from opencode_runs.turns.rewards import BranchOrigin

HEAD = 160
"""Characters of the last answer that are searched without opening the rollout."""
PHASES = ("boot", "setup", "agent", "finalize", "scoring")


@dataclass(slots=True)
class Row:
    """A try: what the page lists of it, and what tells which tries are shown; a run has thousands."""

    text: bytes
    """JSON, but for what is known only once the whole run was read."""
    run: int
    key: str | None
    id: str
    task: str
    outcome: str
    reward: float | None
    forks: int
    branch: BranchOrigin | None
    trace: TraceFigures | None
    detail: int | None = None
    """The number of its rollout in the page; None if it had no room."""
    masked: Counter[str] | None = None
    """What was masked in the text; None if nothing was."""

    def settled(self) -> bytes:
        """JSON with what a trainer makes of its trace, which is known once the whole group was read; not masked."""
        found: dict[str, Any] = {"detail": self.detail}
        if self.trace is not None:
            found |= {"advantage": self.trace.advantage, "unused": self.trace.unused_because}
            found |= {"trained": self.trace.trained_tokens, "findings": sorted(self.trace.findings)}
        return as_json(found)


def rows(episode: ShownEpisode, tries: Tries, figures: list[TraceFigures], run: int) -> list[Row]:
    """A row for each try of the episode, as `opencode-difficulty` tells tries and outcomes."""
    by_trace = {id(trace): found for trace, found in zip(episode.traces, figures, strict=True)}
    rows = []
    for trace, outcome in tries:
        said: dict[str, Any] = {
            "run": run, "episode": episode.id, "id": episode.id, "key": episode.task, "task": episode.called,
            "prompt": episode.prompt, "errors": [error.type for error in episode.errors], "env": episode.env,
        }  # fmt: skip
        if isinstance(outcome, Attempt):
            said |= {"outcome": "timeout" if outcome.timed_out else "ok", "counts": "attempt", "reward": outcome.reward}
        else:
            counts = "unscored" if outcome.unscored else "error"
            said |= {"outcome": outcome.cause, "counts": counts, "reward": None}
        found, branch = None, None
        if trace is not None:
            assert isinstance(trace, ShownTrace)
            found, branch = by_trace[id(trace)], trace.branch
            said |= _of_trace(episode, trace, found)
        forks = found.forks if found else 0
        facts = (said["id"], episode.called, said["outcome"], said["reward"], forks, branch, found)
        rows.append(Row(as_json(said), run, episode.task, *facts))
    return rows


def mask_rows(listed: list[Row]) -> None:
    """Mask the texts of rows; mostly there is nothing to mask, which is seen at once for all of them."""
    masker = Masker()
    masker.json(b"\n".join([row.text for row in listed]))
    for row in listed if masker.counts else ():
        masker = Masker()
        row.text = masker.json(row.text)
        row.masked = masker.counts or None


def _of_trace(episode: ShownEpisode, trace: ShownTrace, figures: TraceFigures) -> dict[str, Any]:
    spans = {phase: span for phase in PHASES if (span := trace.span(phase))}
    return {
        "id": trace.id or episode.id, "model": trace.model, "stop": trace.stop_condition, "turns": trace.turns,
        "tokens": trace.num_total_tokens, "errors": [error.type for error in trace.errors],
        "tools": _tool_calls(trace), "last": _last_words(trace),
        "times": {phase: round(end - start, 3) for phase, (start, end) in spans.items()}
        | {"model": round(trace.model_seconds, 3)},
        "start": min((start for start, _ in spans.values()), default=None),
        "subs": sum(other.turns for other in episode.traces if other is not trace),
        "forks": figures.forks,
        "branch": trace.branch.model_dump() if trace.branch else None,
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
            content = node.message["content"]
            words = " ".join(content[: 2 * HEAD].split())
            return (words if len(words) >= HEAD else " ".join(content[: 10 * HEAD].split()))[:HEAD]
    return ""
