"""One line of `traces.jsonl` with its token data: what a trainer would take from it, and why it would not."""

import math
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from opencode_env.difficulty.record import EpisodeRecord, NodeRecord, Part, TraceRecord


def _numbers(values: object) -> object:
    """JSON has no NaN: `vf-eval` and prime-rl write null."""
    return [math.nan if value is None else value for value in values] if isinstance(values, list) else values


def _if_ours(value: object, validate: ValidatorFunctionWrapHandler) -> Any:
    """Any environment may put anything into a trace's `info`; what is not ours says nothing."""
    try:
        return validate(value)
    except ValidationError:
        return None


class TokenNode(NodeRecord):
    """One message with the tokens that it adds."""

    parent: int | None = None
    token_ids: list[int] = Field(default_factory=list)
    mask: list[bool] = Field(default_factory=list)
    logprobs: Annotated[list[float], BeforeValidator(_numbers)] = Field(default_factory=list)


class ForkRecord(Part):
    """Where and how a conversation's history parted."""

    message: int
    turn: int
    how: str

    def __str__(self) -> str:
        return f"message {self.message} from turn {self.turn} on: {self.how}"


class HistoryRecord(Part):
    """What our interception notes of a trace's forks (`info["history"]`)."""

    forks: int = 0
    first: tuple[ForkRecord, ...] = ()


class KeptLogprobs(Part):
    """The logprobs of one answer of an evaluation endpoint (`info["logprobs"]`)."""

    node: int
    logprobs: Annotated[list[float], BeforeValidator(_numbers)]


class CallRecord(Part):
    node: int | None = None
    completion_tokens: int = Field(0, validation_alias=AliasPath("usage", "completion_tokens"))


class TokenTrace(TraceRecord):
    """A trace as a trainer sees it."""

    id: str = ""
    nodes: tuple[TokenNode, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    history: Annotated[HistoryRecord | None, WrapValidator(_if_ours)] = Field(
        None, validation_alias=AliasPath("info", "history")
    )
    kept: Annotated[tuple[KeptLogprobs, ...] | None, WrapValidator(_if_ours)] = Field(
        None, validation_alias=AliasPath("info", "logprobs")
    )

    @property
    def has_tokens(self) -> bool:
        """Whether there is token data: an evaluation client leaves none."""
        return any(node.token_ids for node in self.nodes)

    @property
    def scores(self) -> Iterator[float]:
        """The weighted rewards that were computed; NaN for one that is no number."""
        for reward in self.rewards.values():
            if reward is not None:
                yield (math.nan if reward.score is None else reward.score) * reward.weight

    @property
    def fork_notes(self) -> list[str]:
        """Where and how the first forks came about, as far as the interception noted it."""
        return [str(fork) for fork in self.history.first] if self.history is not None else []


class TokenEpisode(EpisodeRecord):
    """An episode as a trainer sees it."""

    traces: tuple[TokenTrace, ...]
    group_id: str | None = Field(None, validation_alias=AliasPath("group", "id"))

    def unused_because(self, trace: TokenTrace) -> str | None:
        """Why a trainer leaves out one of its traces, whatever its tokens are; None if it does not.

        The rules are prime-rl's: a failed trace never trains, and neither does any trace of an episode that failed.
        """
        if not trace.trainable:
            return f'seat "{trace.seat}" does not train'
        if trace.dropped is not None:
            return f"dropped: {trace.dropped}"
        if not trace.ok:
            return trace.errors[-1].type if trace.errors else trace.stop_condition or "unknown error"
        if not self.ok:
            return f"its episode failed: {self.errors[-1].type if self.errors else 'another trace'}"
        return None if trace.turns else "no model call"
