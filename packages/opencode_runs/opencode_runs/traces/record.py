"""The schema of a line of `traces.jsonl`, checked at the edge; every reader of runs takes it from here.

A line is one verifiers episode (`verifiers.v1.episode.Episode`, trace schema 1), written by `vf-eval` or by
prime-rl's file monitor. Messages and calls, nearly all of a line, are read by msgspec, the rest by pydantic; both take
less than `json.loads`. What is read as any value is shown, and nothing is worked out from it.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self

import msgspec
from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    WrapValidator,
)
from pydantic_core import PydanticCustomError, from_json

from opencode_runs.errors import LineError, VersionError

SCHEMA_VERSION = 1
"""The trace schema these models read (`verifiers.v1.trace.TRACE_VERSION` of verifiers 0.4)."""
STRICT = ConfigDict(strict=True)
"""Text is not a number and a number is not a truth value: verifiers writes neither for the other."""
NO_CALL = "no model call"
PER_SAMPLED = ("advantages", "reference_logprobs", "trainer_logprobs", "entropies")
"""What a message may hold of each of its tokens that train, beside logprobs."""


def _text(value: object) -> object:
    """Some data sets number their rows: an id column of integers is still an id."""
    return str(value) if isinstance(value, int | float) else value


def _head(value: object) -> object:
    """The beginning of a prompt, which may be a list of messages: enough to recognise a task by."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        value = value[-1].get("content")
    return " ".join(value[:80].split()) if isinstance(value, str) else None


def _if_ours(value: object, validate: Callable[[object], Any]) -> Any:
    """Any environment may put anything into a trace's `info`; what is not ours says nothing."""
    try:
        return validate(value)
    except ValidationError:
        return None


def _with_nan(values: Any) -> Any:
    """JSON has no NaN: `vf-eval` and prime-rl write null."""
    return [math.nan if value is None else value for value in values] if isinstance(values, list) else values


_Label = Annotated[str | None, BeforeValidator(_text)]
_OURS = WrapValidator(_if_ours)


class LinePart(BaseModel, frozen=True, extra="ignore", protected_namespaces=()):
    """A part of a line: what it does not name is skipped."""


class Origin(BaseModel, frozen=True):
    """The kept turn that a rollout was continued from; also `trace.info["branch"]` of that rollout."""

    trace_id: str
    turn: int
    digest: str
    resumed: bool = False
    """Whether the same rollout goes on after its process ended; else it is a branch of it."""


class BranchOrigin(Origin):
    """The kept turn that a rollout went on from, as its trace says it."""

    same_request: bool = True
    """Whether the agent went on with the request that the turn had waited for."""
    forked: bool = False
    """Whether the conversation had forked by then."""


class ErrorRecord(LinePart):
    type: str = "unknown error"
    message: Any = None
    traceback: Any = None
    status_code: Any = None


class OutcomeRecord(LinePart):
    """Tells how a rollout ended (`info["outcome"]`)."""

    name: str
    """Of the row in the table of outcomes, or the type of an error that has none."""
    again: bool = True
    """Whether it is tried again where no rule says otherwise."""


class RewardRecord(LinePart):
    model_config = STRICT

    score: float | None = None
    weight: float = 1.0


class TokenNode(msgspec.Struct, dict=True):
    """One message with the tokens that it adds."""

    parent: int | None = None
    sampled: bool = False
    message: Any = None
    tools: Any = None
    """What a root's request offered."""
    timestamp: float | None = None
    token_ids: list[int] = []
    mask: list[bool] = []
    is_content: list[bool] = []
    logprobs: list[float] = []
    advantages: list[float] | None = None
    reference_logprobs: list[float] | None = None
    trainer_logprobs: list[float] | None = None
    entropies: list[float] | None = None
    loss_weights: dict[str, list[float]] | None = None

    @cached_property
    def trained(self) -> int:
        """Return how many of its tokens train."""
        return self.mask.count(True)

    @property
    def has_numbers(self) -> bool:
        """Whether it has anything that belongs to tokens."""
        return bool(
            self.token_ids or self.mask or self.logprobs or self.is_content or self.advantages
            or self.reference_logprobs or self.trainer_logprobs or self.entropies or self.loss_weights
        )  # fmt: skip

    @property
    def role(self) -> str | None:
        return self.message.get("role") if isinstance(self.message, dict) else None


class ForkRecord(LinePart):
    """Tells where and how a conversation's history parted."""

    message: int
    turn: int
    how: str


class SampleKind(StrEnum):
    """Tells what a training sample is a part of."""

    CONVERSATION = "conversation"
    """One that was never compacted."""
    SECTION = "section"
    """What lies between two compactions of one."""
    SUMMARY = "summary"


class SectionRecord(LinePart):
    """A part of a conversation between two compactions."""

    conversation: str
    first: int
    """The node of its first answer."""
    last: int
    tokens: int | None = None
    """Of its last call, prompt and answer, as the endpoint counted them."""
    summary: int | None = None
    """The number of the summary that it begins with; None of the first section of a conversation."""
    left: tuple[int, ...] = ()
    """The last answers of its branches that a fork left behind."""


class SummaryRecord(LinePart):
    """An answer to OpenCode's request for a summary."""

    conversation: str
    node: int | None = None
    """None: another seat's model said it, which does not train."""
    planned: bool = True
    """Whether the window was not yet full; else a call had been refused."""
    used: bool = True
    """Whether a section begins with it."""


class Trained(StrEnum):
    """Tells what trains of conversations that were compacted."""

    ALL = "all"
    SECTIONS = "sections"
    """All but the summaries."""
    LAST = "last"
    """The last section of each conversation."""


class HistoryRecord(LinePart):
    """Holds what our interception notes of a trace's forks and compactions (`info["history"]`)."""

    forks: int = 0
    first: tuple[ForkRecord, ...] = ()
    sections: tuple[SectionRecord, ...] = ()
    """Of the conversations that were compacted, in their order."""
    summaries: tuple[SummaryRecord, ...] = ()
    trains: Trained = Trained.ALL

    @classmethod
    def of(cls, info: Any) -> Self:
        """Return what a trace's `info` says; empty where it says nothing, or not in these words."""
        try:
            return cls.model_validate(info.get("history") or {})
        except (AttributeError, ValidationError):
            return cls()

    def is_trained(self, kind: SampleKind, number: int) -> bool:
        """Whether a section or a summary, by its number, is to train."""
        if self.trains is Trained.ALL or kind is SampleKind.CONVERSATION:
            return True
        if self.trains is Trained.SECTIONS or kind is SampleKind.SUMMARY:
            return kind is SampleKind.SECTION
        later = {section.conversation for section in self.sections[number + 1 :]}
        return self.sections[number].conversation not in later


class KeptLogprobs(LinePart):
    """The logprobs of one answer of an evaluation endpoint (`info["logprobs"]`)."""

    node: int
    tokens: list[str] | None = None
    logprobs: Annotated[list[float], BeforeValidator(_with_nan)]


class UsageRecord(msgspec.Struct, gc=False):
    """Tokens of a call, as the endpoint counted them."""

    prompt_tokens: int = 0
    """Without those read from a cache."""
    cached_input_tokens: int | None = None
    completion_tokens: int = 0

    @property
    def input_tokens(self) -> int:
        """All tokens of the prompt."""
        return self.prompt_tokens + (self.cached_input_tokens or 0)


class CallTime(msgspec.Struct, gc=False):
    start: float | None = None
    end: float | None = None


class CallRecord(msgspec.Struct, gc=False):
    node: int | None = None
    """The answer; None where there is none."""
    model: str | None = None
    sampling: dict[str, Any] | None = None
    usage: UsageRecord | None = None
    time: CallTime | None = None
    endpoint: Any = None
    finish_reason: Any = None
    error: Any = None

    @property
    def start(self) -> float | None:
        """Return when it began, in seconds since 1970."""
        return self.time.start if self.time is not None else None

    @property
    def end(self) -> float | None:
        return self.time.end if self.time is not None else None


def _node_with_nan(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    weights = node.get("loss_weights")
    named = {name: _with_nan(values) for name, values in weights.items()} if isinstance(weights, dict) else weights
    floats = {name: _with_nan(node[name]) for name in ("logprobs", *PER_SAMPLED) if name in node}
    return node | floats | {"loss_weights": named}


def _read_as(kind: type[msgspec.Struct]) -> PlainValidator:
    """Return how pydantic reads a list of structs: messages and calls are most of a line, and this is fast."""

    def read(value: Any) -> Any:
        try:
            return msgspec.convert(value, tuple[kind, ...])  # type: ignore[valid-type]
        except msgspec.ValidationError:
            pass
        try:
            nodes = [_node_with_nan(node) for node in value] if isinstance(value, list) else value
            return msgspec.convert(nodes, tuple[kind, ...])  # type: ignore[valid-type]
        except msgspec.ValidationError as error:
            raise PydanticCustomError("wrong_type", "{problem}", {"problem": str(error)}) from None

    return PlainValidator(read)


class TraceRecord(LinePart):
    """A trace with its messages, tokens and calls.

    One that holds other types than verifiers writes is empty, and `wrong_types` says so.
    """

    model_config = STRICT

    version: int
    id: str = ""
    ok: bool = False
    verifiers: str = Field("unknown", validation_alias=AliasPath("verifiers", "version"))
    seat: str = Field("agent", validation_alias=AliasPath("agent", "name"))
    trainable: bool = Field(True, validation_alias=AliasPath("agent", "trainable"))
    model: str | None = Field(None, validation_alias=AliasPath("agent", "config", "model"))
    sampling: dict[str, Any] | None = Field(None, validation_alias=AliasPath("agent", "config", "sampling"))
    retries: Any = Field(None, validation_alias=AliasPath("agent", "config", "retries"))
    runtime: Any = Field(None, validation_alias=AliasPath("agent", "config", "runtime", "type"))
    harness: Any = Field(None, validation_alias=AliasPath("agent", "config", "harness", "id"))
    task_key: str | None = Field(None, validation_alias=AliasPath("task", "key"))
    task_hash: str | None = Field(None, validation_alias=AliasPath("task", "hash"))
    task_data: Any = Field(None, validation_alias=AliasPath("task", "data"))
    nodes: Annotated[tuple[TokenNode, ...], _read_as(TokenNode)] = ()
    calls: Annotated[tuple[CallRecord, ...], _read_as(CallRecord)] = ()
    tools: Any = None
    rewards: dict[str, RewardRecord | None] = Field(default_factory=dict)
    metrics: dict[str, float | None] = Field(default_factory=dict)
    stop_condition: str | None = None
    dropped: str | None = None
    """Why the trace is to be left out of reward means (verifiers 0.4.1 and later)."""
    errors: list[ErrorRecord] = Field(default_factory=list)
    num_total_tokens: int | None = Field(None, ge=0, lt=1 << 63)
    timing: Any = None
    info: Any = None
    scorers: Annotated[dict[str, str] | None, _OURS] = Field(None, validation_alias=AliasPath("info", "scorers"))
    """The version of each scorer by its name; none before they had versions, or of another environment."""
    branch: Annotated[BranchOrigin | None, _OURS] = Field(
        None, validation_alias=AliasPath("info", "branch"), strict=False
    )
    outcome: Annotated[OutcomeRecord | None, _OURS] = Field(None, validation_alias=AliasPath("info", "outcome"))
    """None before traces said it, or of another environment."""
    history: Annotated[HistoryRecord | None, _OURS] = Field(None, validation_alias=AliasPath("info", "history"))
    kept: Annotated[tuple[KeptLogprobs, ...] | None, _OURS] = Field(
        None, validation_alias=AliasPath("info", "logprobs"), strict=False
    )
    agent_version: Annotated[str | None, _OURS] = Field(None, validation_alias=AliasPath("info", "agent", "version"))
    sub_trace: Annotated[str | None, _OURS] = Field(None, validation_alias=AliasPath("info", "rlm", "sub_trace"))
    """The trace of the agent's sub calls, if it made any."""
    _wrong_types: str = PrivateAttr("")

    @classmethod
    def repaired(cls, value: Any) -> Any:
        """A trace that holds other types than verifiers writes, empty; any other value as it is."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            if not isinstance(value, dict):
                return value
            first = error.errors(include_url=False, include_input=False)[0]
            kept = _of_types(value, _STANDING)
            try:
                found = cls.model_validate(kept)
            except ValidationError:
                return kept
            found._wrong_types = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            return found

    @property
    def wrong_types(self) -> str:
        """The first field that holds another type than verifiers writes; empty if none does."""
        return self._wrong_types

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

    @property
    def timed_out(self) -> bool:
        """Whether the agent's time limit ended it; of older traces verifiers' stop condition says so."""
        return self.stop_condition == "agent_timeout" if self.outcome is None else self.outcome.name == "AGENT_TIMEOUT"

    @property
    def sampled_tokens(self) -> int:
        """Tokens of all answers, as the endpoint counted them."""
        return sum(call.usage.completion_tokens for call in self.calls if call.usage is not None)

    @cached_property
    def has_tokens(self) -> bool:
        """Whether there is token data: an evaluation client leaves none."""
        return any(node.token_ids for node in self.nodes)

    def tokens_of(self, path: Sequence[int], trains: Sequence[int]) -> tuple[int, int]:
        """Tokens of a branch, and those of them that train there."""
        return sum([len(self.nodes[number].token_ids) for number in path]), sum([self.nodes[n].trained for n in trains])

    @property
    def scores(self) -> list[float]:
        """The weighted rewards that were computed; NaN for one that is not a number."""
        computed = [reward for reward in self.rewards.values() if reward is not None]
        return [(math.nan if reward.score is None else reward.score) * reward.weight for reward in computed]

    @property
    def fork_notes(self) -> list[str]:
        """Return where and how the first forks came about, as far as the interception noted it."""
        first = self.history.first if self.history is not None else ()
        return [f"message {fork.message} from turn {fork.turn} on: {fork.how}" for fork in first]

    def span(self, phase: str) -> tuple[float, float] | None:
        """Return when a phase (`boot`, `setup`, `agent`, `finalize`, `scoring`) began and ended; None if it is not
        known."""
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


_STANDING: dict[str, Any] = {
    "version": int, "id": str, "ok": bool, "verifiers": {"version": str},
    "agent": {"name": str, "trainable": bool, "config": {"model": str, "sampling": dict}},
}  # fmt: skip
"""What is still read of a trace that holds wrong types: where it stands, whose it is, and whether it would train."""


def _of_types(given: Any, kinds: dict[str, Any]) -> dict[str, Any]:
    known = given if isinstance(given, dict) else {}
    inner = {name: _of_types(known.get(name), kind) for name, kind in kinds.items() if isinstance(kind, dict)}
    return {name: known[name] for name, kind in kinds.items() if type(known.get(name)) is kind} | inner


class EpisodeRecord(LinePart):
    model_config = STRICT

    id: str
    ok: bool = False
    env: str = Field("", validation_alias=AliasPath("env", "id"))
    task_key: str | None = Field(None, validation_alias=AliasPath("task", "key"))
    task_hash: str | None = Field(None, validation_alias=AliasPath("task", "hash"))
    task_data: Any = Field(None, validation_alias=AliasPath("task", "data"))
    task_id: _Label = Field(None, validation_alias=AliasPath("task", "data", "id"))
    task_name: _Label = Field(None, validation_alias=AliasPath("task", "data", "name"))
    prompt: Annotated[str | None, BeforeValidator(_head)] = Field(
        None, validation_alias=AliasPath("task", "data", "prompt")
    )
    errors: list[ErrorRecord] = Field(default_factory=list)
    traces: tuple[TraceRecord, ...] = Field(strict=False)
    group_id: str | None = Field(None, validation_alias=AliasPath("group", "id"))
    run: Any = None

    @classmethod
    def read(cls, line: bytes) -> Self:
        """One line of JSON as this record.

        Raises:
            ValidationError: it holds something else.
            ValueError: it is not whole JSON.
        """
        value = from_json(line)
        try:
            return cls.model_validate(value)
        except ValidationError:
            if not isinstance(value, dict) or not isinstance(value.get("traces"), list):
                raise
            return cls.model_validate(value | {"traces": [TraceRecord.repaired(one) for one in value["traces"]]})

    @property
    def task(self) -> str | None:
        """The task's key; runs older than keys have the content hash only."""
        return self.task_key or self.task_hash

    @property
    def called(self) -> str:
        """Return what people call the task: its id, name, the beginning of its prompt, or its key."""
        return self.task_id or self.task_name or self.prompt or self.task or ""

    @property
    def restores_histories(self) -> bool:
        """Whether the agent's histories are restored to what was sampled, and their forks noted as they come about."""
        return any("history_forks" in trace.metrics for trace in self.traces)

    def noted_forks(self, trace: TraceRecord) -> int:
        """The forks of one of its traces that were noted, on the trace or as a metric."""
        counted = [trace.metrics.get("history_forks")]
        if trace.seat == "sub":
            counted += [other.metrics.get("sub_llm_history_forks") for other in self.traces]
        numbers = [int(count) for count in counted if count is not None and math.isfinite(count)]
        return max([trace.history.forks if trace.history else 0, *numbers])

    def unused_because(self, trace: TraceRecord) -> str | None:
        """Return why a trainer leaves out one of its traces, whatever its tokens are; None if it does not.

        The rules are prime-rl's: a failed trace never trains, and neither does any trace of an episode that failed.
        """
        if not trace.trainable:
            return f'seat "{trace.seat}" does not train'
        if trace.wrong_types:
            return "it cannot be read"
        if trace.dropped is not None:
            return f"dropped: {trace.dropped}"
        if not trace.ok:
            return trace.errors[-1].type if trace.errors else trace.stop_condition or "unknown error"
        if not self.ok:
            return f"its episode failed: {self.errors[-1].type if self.errors else 'another trace'}"
        return None if trace.turns else NO_CALL


def parse_line(line: bytes) -> EpisodeRecord:
    """Read one line of `traces.jsonl`.

    Raises:
        VersionError: a trace has another schema version than `SCHEMA_VERSION`.
        LineError: the line is not JSON, is not an episode, or names no task.
    """
    try:
        episode = EpisodeRecord.read(line)
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


def tokens_used(usages: Iterable[Any]) -> tuple[int, int, int]:
    """Tokens of calls as the endpoint counted them, None where it did not: read anew, read from a cache, sampled."""
    known = [usage for usage in usages if usage is not None]
    cached = sum(usage.cached_input_tokens or 0 for usage in known)
    return sum(usage.prompt_tokens for usage in known), cached, sum(usage.completion_tokens for usage in known)
