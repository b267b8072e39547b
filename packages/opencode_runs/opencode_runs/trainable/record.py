"""One line of `traces.jsonl` with its token data: what a trainer would take from it, and why it would not."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Self, get_args

import msgspec
from pydantic import AliasPath, ConfigDict, Field, PlainValidator, PrivateAttr, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError, from_json

from opencode_runs.traces.record import EpisodeRecord, Part, RewardRecord, TraceRecord, if_ours
from opencode_runs.trainable.samples import TrainedBranch

NO_CALL = "no model call"
_OURS = WrapValidator(if_ours)
STRICT = ConfigDict(strict=True)
"""Text is not a number and a number is not a truth value: verifiers writes neither for the other."""


def _with_nan(values: Any) -> Any:
    """JSON has no NaN: `vf-eval` and prime-rl write null."""
    return [math.nan if value is None else value for value in values] if isinstance(values, list) else values


def _numbers(values: object, validate: Callable[[object], Any]) -> Any:
    try:
        return validate(values)
    except ValidationError:
        return validate(_with_nan(values))


_Floats = Annotated[list[float], WrapValidator(_numbers)]


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
        """How many of its tokens train."""
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


class ForkRecord(Part):
    """Where and how a conversation's history parted."""

    message: int
    turn: int
    how: str


class HistoryRecord(Part):
    """What our interception notes of a trace's forks (`info["history"]`)."""

    forks: int = 0
    first: tuple[ForkRecord, ...] = ()


class KeptLogprobs(Part):
    """The logprobs of one answer of an evaluation endpoint (`info["logprobs"]`)."""

    node: int
    tokens: list[str] | None = None
    logprobs: _Floats


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

    @property
    def start(self) -> float | None:
        """When it began, in seconds since 1970."""
        return self.time.start if self.time is not None else None

    @property
    def end(self) -> float | None:
        return self.time.end if self.time is not None else None


PER_SAMPLED = ("advantages", "reference_logprobs", "trainer_logprobs", "entropies")
"""What a message may hold of each of its tokens that train, beside logprobs."""


def _node_with_nan(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    weights = node.get("loss_weights")
    named = {name: _with_nan(values) for name, values in weights.items()} if isinstance(weights, dict) else weights
    floats = {name: _with_nan(node[name]) for name in ("logprobs", *PER_SAMPLED) if name in node}
    return node | floats | {"loss_weights": named}


def read_as(kind: type[msgspec.Struct]) -> PlainValidator:
    """How pydantic reads a list of structs: messages and calls are most of a line, and this is fast."""

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


class WeightedReward(RewardRecord):
    """A reward whose score and weight are numbers."""

    model_config = STRICT


class TokenTrace(TraceRecord):
    """A trace as a trainer sees it; one that holds other types than verifiers writes is empty and says so."""

    model_config = STRICT

    id: str = ""
    task_key: str | None = Field(None, validation_alias=AliasPath("task", "key"))
    task_hash: str | None = Field(None, validation_alias=AliasPath("task", "hash"))
    task_data: Any = Field(None, validation_alias=AliasPath("task", "data"))
    retries: Any = Field(None, validation_alias=AliasPath("agent", "config", "retries"))
    nodes: Annotated[tuple[TokenNode, ...], read_as(TokenNode)] = ()  # type: ignore[assignment]
    calls: Annotated[tuple[CallRecord, ...], read_as(CallRecord)] = ()
    rewards: dict[str, WeightedReward | None] = Field(default_factory=dict)
    metrics: dict[str, float | None] = Field(default_factory=dict)
    history: Annotated[HistoryRecord | None, _OURS] = Field(None, validation_alias=AliasPath("info", "history"))
    kept: Annotated[tuple[KeptLogprobs, ...] | None, _OURS] = Field(
        None, validation_alias=AliasPath("info", "logprobs"), strict=False
    )
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
            kept: dict[str, Any] = _of_types(value, _STANDING) | {"agent": _of_types(value.get("agent"), _SEAT)}
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
    def sampled_tokens(self) -> int:
        """Tokens of all answers, as the endpoint counted them."""
        return sum(call.usage.completion_tokens for call in self.calls if call.usage is not None)

    @cached_property
    def has_tokens(self) -> bool:
        """Whether there is token data: an evaluation client leaves none."""
        return any(node.token_ids for node in self.nodes)

    def tokens_of(self, branch: TrainedBranch) -> tuple[int, int]:
        """Tokens of a branch, and those of them that train there."""
        trained = sum([self.nodes[number].trained for number in branch.trains])
        return sum([len(self.nodes[number].token_ids) for number in branch.path]), trained

    @property
    def scores(self) -> list[float]:
        """The weighted rewards that were computed; NaN for one that is not a number."""
        computed = [reward for reward in self.rewards.values() if reward is not None]
        return [(math.nan if reward.score is None else reward.score) * reward.weight for reward in computed]

    @property
    def fork_notes(self) -> list[str]:
        """Where and how the first forks came about, as far as the interception noted it."""
        first = self.history.first if self.history is not None else ()
        return [f"message {fork.message} from turn {fork.turn} on: {fork.how}" for fork in first]


_STANDING: dict[str, type] = {"version": int, "id": str, "ok": bool}
_SEAT: dict[str, type] = {"name": str, "trainable": bool}
"""What is still read of a trace that holds wrong types: where it stands, and whether a trainer would use it."""


def _of_types(given: Any, kinds: dict[str, type]) -> dict[str, Any]:
    known = given if isinstance(given, dict) else {}
    return {name: known[name] for name, kind in kinds.items() if type(known.get(name)) is kind}


class TokenEpisode(EpisodeRecord):
    model_config = STRICT

    traces: tuple[TokenTrace, ...] = Field(strict=False)
    group_id: str | None = Field(None, validation_alias=AliasPath("group", "id"))
    task_data: Any = Field(None, validation_alias=AliasPath("task", "data"))

    @classmethod
    def read(cls, line: bytes) -> Self:
        """One line of JSON; building its values first is faster, as most of them are kept."""
        value = from_json(line)
        try:
            return cls.model_validate(value)
        except ValidationError:
            if not isinstance(value, dict) or not isinstance(value.get("traces"), list):
                raise
            (trace, _) = get_args(cls.model_fields["traces"].annotation)
            return cls.model_validate(value | {"traces": [trace.repaired(one) for one in value["traces"]]})

    @property
    def restores_histories(self) -> bool:
        """Whether the agent's histories are restored to what was sampled, and their forks noted as they come about."""
        return any("history_forks" in trace.metrics for trace in self.traces)

    def noted_forks(self, trace: TokenTrace) -> int:
        """The forks of one of its traces that were noted, on the trace or as a metric."""
        counted = [trace.metrics.get("history_forks")]
        if trace.seat == "sub":
            counted += [other.metrics.get("sub_llm_history_forks") for other in self.traces]
        numbers = [int(count) for count in counted if count is not None and math.isfinite(count)]
        return max([trace.history.forks if trace.history else 0, *numbers])

    def unused_because(self, trace: TokenTrace) -> str | None:
        """Why a trainer leaves out one of its traces, whatever its tokens are; None if it does not.

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
