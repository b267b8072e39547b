"""One line of `traces.jsonl` with all that a person wants to see of it.

What is read beyond a trainer's view may be anything: it is shown, nothing is worked out from it.
"""

from typing import Annotated, Any

from pydantic import AliasPath, Field

from opencode_runs.traces.record import ErrorRecord
from opencode_runs.trainable.record import CallRecord, TokenEpisode, TokenTrace, read_as
from opencode_runs.turns.rewards import BranchedFrom


class ShownError(ErrorRecord):
    message: Any = None
    traceback: Any = None
    status_code: Any = None


class ShownCall(CallRecord, gc=False):
    endpoint: Any = None
    finish_reason: Any = None
    error: Any = None


class ShownTrace(TokenTrace):
    errors: list[ShownError] = Field(default_factory=list)  # type: ignore[assignment]
    calls: Annotated[tuple[ShownCall, ...], read_as(ShownCall)] = ()
    tools: Any = None
    info: Any = None
    timing: Any = None
    runtime: Any = Field(None, validation_alias=AliasPath("agent", "config", "runtime", "type"))
    branch: BranchedFrom = Field(None, validation_alias=AliasPath("info", "branch"), strict=False)
    harness: Any = Field(None, validation_alias=AliasPath("agent", "config", "harness", "id"))

    def span(self, phase: str) -> tuple[float, float] | None:
        """When a phase (`boot`, `setup`, `agent`, `finalize`, `scoring`) began and ended; None if it is not known."""
        found = self.timing.get(phase) if isinstance(self.timing, dict) else None
        start, end = (found.get("start"), found.get("end")) if isinstance(found, dict) else (None, None)
        return (start, end) if isinstance(start, float) and isinstance(end, float) and 0 < start <= end else None

    @property
    def model_seconds(self) -> float:
        """Wall-clock seconds in which a model call was under way; calls side by side count once."""
        spans = sorted((c.start, c.end) for c in self.calls if c.start and c.end and c.end >= c.start)
        total, reached = 0.0, 0.0
        for start, end in spans:
            total += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return total


class ShownEpisode(TokenEpisode):
    errors: list[ShownError] = Field(default_factory=list)  # type: ignore[assignment]
    traces: tuple[ShownTrace, ...] = Field(strict=False)
    run: Any = None
