"""One row's rollout as a test reads it, and what it says to the plugin's author when a promise is broken."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verifiers.v1.trace import WireTrace

from opencode_env.conformance.evidence import Evidence


@dataclass(frozen=True)
class Rollout:
    """What became of one row."""

    evidence: Evidence
    name: str

    @property
    def trace(self) -> WireTrace | None:
        """The agent's trace; None when the episode failed before it was made."""
        for episode in self.evidence.finished.episodes:
            if episode.task.data.id == self.name:
                return next(iter(episode.traces), None)
        return None

    @property
    def error(self) -> str:
        """Type and message of the error that ended it; empty when it ended well."""
        for episode in (one for one in self.evidence.finished.episodes if one.task.data.id == self.name):
            errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
            return f"{errors[-1].type}: {errors[-1].message}" if errors else ""
        return f"no episode of this row was saved (vf-eval ended with {self.evidence.finished.exit_code})"

    @property
    def ok(self) -> bool:
        """Whether it is a sound rollout, to be trained on."""
        return self.trace is not None and self.trace.ok and not self.error

    @property
    def stop(self) -> str | None:
        return self.trace.stop_condition if self.trace else None

    @property
    def reward(self) -> float | None:
        """Its reward; None when it is not scored."""
        given = [reward for reward in self.trace.rewards.values() if reward is not None] if self.trace else []
        return self.trace.reward if self.trace and given else None

    @property
    def metrics(self) -> dict[str, float | None]:
        return dict(self.trace.metrics) if self.trace else {}

    @property
    def checks(self) -> dict[str, Any]:
        """What the commands of the row answered after the agent, by name."""
        return dict(self.trace.info.get("checks", {})) if self.trace else {}

    def broken(self, promise: str) -> str:
        """The message of a test that failed: the promise, and what was seen instead."""
        failed = {name: result["output"].strip() for name, result in self.checks.items() if result["exit_code"]}
        calls = [call.error.type if call.error else "answered" for call in self.trace.calls] if self.trace else []
        log = self.evidence.finished.log_file
        return (
            f"\n{promise}\nrow {self.name}: ok={self.ok} stop={self.stop} reward={self.reward}"
            f" error={_shortened(self.error) or None}\n  model calls: {', '.join(calls) or 'none'}"
            f"\n  failed checks: {failed or 'none'}\n  metrics: {self.metrics}\n  log: {log}"
        )


Row = Callable[[str], Rollout]
"""What became of a row, by its name."""


def _shortened(error: str) -> str:
    """Its beginning and its end, where a traceback says what happened."""
    return error if len(error) <= 1500 else f"{error[:500]}\n[…]\n{error[-1000:]}"
