"""One line of `traces.jsonl` as rating sees it: the few fields it needs, checked at the edge.

A line is one verifiers episode (`verifiers.v1.episode.Episode`, trace schema 1), written by `vf-eval` or by
prime-rl's file monitor. The models name only what rating reads: pydantic skips the rest (messages, token ids,
logprobs: nearly all of a line) without building Python objects, which is why this is faster than `json.loads`.
"""

import json
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, Self, TypeVar

from pydantic import AliasPath, BaseModel, BeforeValidator, Field, ValidationError

SCHEMA_VERSION = 1
"""The trace schema these models read (`verifiers.v1.trace.TRACE_VERSION` of verifiers 0.4)."""


def _text(value: object) -> object:
    """Some data sets number their rows: an id column of integers is still an id."""
    return str(value) if isinstance(value, int | float) else value


def _head(value: object) -> object:
    """The beginning of a prompt, which may be a list of messages: enough to recognise a task by."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return " ".join(value[:80].split()) if isinstance(value, str) else None


def if_ours(value: object, validate: Callable[[object], Any]) -> Any:
    """Any environment may put anything into a trace's `info`; what is not ours says nothing."""
    try:
        return validate(value)
    except ValidationError:
        return None


def _scorers(value: object) -> object:
    """What is not ours says nothing."""
    sound = isinstance(value, dict) and all(isinstance(version, str) for version in value.values())
    return value if sound else {}


_Label = Annotated[str | None, BeforeValidator(_text)]


class Part(BaseModel, frozen=True, extra="ignore", protected_namespaces=()):
    """A part of a line: what it does not name is skipped."""


class ErrorRecord(Part):
    type: str = "unknown error"


class NodeRecord(Part):
    sampled: bool = False


class RewardRecord(Part):
    score: float | None = None
    weight: float = 1.0


class TraceRecord(Part):
    version: int
    verifiers: str = Field("unknown", validation_alias=AliasPath("verifiers", "version"))
    seat: str = Field("agent", validation_alias=AliasPath("agent", "name"))
    trainable: bool = Field(True, validation_alias=AliasPath("agent", "trainable"))
    model: str | None = Field(None, validation_alias=AliasPath("agent", "config", "model"))
    sampling: dict[str, Any] | None = Field(None, validation_alias=AliasPath("agent", "config", "sampling"))
    scorers: Annotated[Mapping[str, str], BeforeValidator(_scorers)] = Field(
        default_factory=dict, validation_alias=AliasPath("info", "scorers")
    )
    """The version of each scorer by its name; none before they had versions, or of another environment."""
    nodes: tuple[NodeRecord, ...] = ()
    rewards: Mapping[str, RewardRecord | None] = Field(default_factory=dict)
    ok: bool = False
    stop_condition: str | None = None
    dropped: str | None = None
    """Why the trace is to be left out of reward means (verifiers 0.4.1 and later)."""
    errors: list[ErrorRecord] = Field(default_factory=list)
    num_total_tokens: int | None = Field(None, ge=0, lt=1 << 63)

    @property
    def sampling_text(self) -> str:
        """The sampling settings that were set, as canonical JSON."""
        given = {name: value for name, value in (self.sampling or {}).items() if value is not None}
        return json.dumps(given, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def turns(self) -> int:
        """Sampled turns, as `verifiers.v1.trace.Trace.num_turns` counts them."""
        return sum([node.sampled for node in self.nodes])

    @property
    def reward(self) -> float | None:
        """The weighted sum, or None if a reward is missing, was not computed or is not a number."""
        total = 0.0
        for reward in self.rewards.values():
            if reward is None or reward.score is None:
                return None
            total += reward.score * reward.weight
        return total if self.rewards and math.isfinite(total) else None


class EpisodeRecord(Part):
    id: str
    env: str = Field("", validation_alias=AliasPath("env", "id"))
    task_key: str | None = Field(None, validation_alias=AliasPath("task", "key"))
    task_hash: str | None = Field(None, validation_alias=AliasPath("task", "hash"))
    task_id: _Label = Field(None, validation_alias=AliasPath("task", "data", "id"))
    task_name: _Label = Field(None, validation_alias=AliasPath("task", "data", "name"))
    prompt: Annotated[str | None, BeforeValidator(_head)] = Field(
        None, validation_alias=AliasPath("task", "data", "prompt")
    )
    ok: bool = False
    errors: list[ErrorRecord] = Field(default_factory=list)
    traces: tuple[TraceRecord, ...]

    @property
    def task(self) -> str | None:
        """The task's key; runs older than keys have the content hash only."""
        return self.task_key or self.task_hash

    @property
    def called(self) -> str:
        """What people call the task: its id, name, the beginning of its prompt, or its key."""
        return self.task_id or self.task_name or self.prompt or self.task or ""

    @classmethod
    def read(cls, line: bytes) -> Self:
        """One line of JSON as this record.

        Raises:
            ValidationError: it holds something else.
            ValueError: it is not whole JSON.
        """
        return cls.model_validate_json(line)


class LineError(ValueError):
    """A line that is not an episode; `torn` if it is not even whole JSON."""

    def __init__(self, message: str, *, torn: bool = False) -> None:
        super().__init__(message)
        self.torn = torn
        self.unended = False
        """Whether no line's end follows it: it is still being written, or its writer was killed."""


class VersionError(LineError):
    """An episode of a trace schema this command cannot read."""


Episode = TypeVar("Episode", bound=EpisodeRecord)


def parse_line(line: bytes, kind: type[Episode]) -> Episode:
    """Read one line of `traces.jsonl` as `EpisodeRecord`, or a subclass that reads more of it.

    Raises:
        VersionError: a trace has another schema version than `SCHEMA_VERSION`.
        LineError: the line is not JSON, is not an episode, or names no task.
    """
    try:
        episode = kind.read(line)
    except ValueError as error:
        first = error.errors(include_url=False, include_input=False)[0] if isinstance(error, ValidationError) else None
        if first is None or first["type"] == "json_invalid":
            raise LineError("not whole JSON", torn=True) from None
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise LineError(f"not a verifiers episode: {where}: {first['msg']}") from None
    for trace in episode.traces:
        if trace.version != SCHEMA_VERSION:
            raise VersionError(f"trace schema {trace.version}, this command reads {SCHEMA_VERSION}")
    if episode.task is None:
        raise LineError("the episode names no task (no task.key and no task.hash)")
    return episode
