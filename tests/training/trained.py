"""A conversation with the real binary and a training client, and what makes its traces fit to train on."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent.interception import SubSettings
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.cli_agent.traces import AnyTrace
from verifiers.v1.clients import TrainClientConfig
from verifiers.v1.interception import Interception, InterceptionServerConfig

from tests.support.families import Family
from tests.support.seats import MAIN_MODEL, seated
from tests.support.sub_sessions import has_tasks, with_tasks
from tests.support.token_engine import Call, Says, TokenEngine


@dataclass(frozen=True)
class Trained:
    """What one conversation left behind."""

    main: AnyTrace
    sub: AnyTrace
    engine: TokenEngine

    @property
    def results(self) -> list[str]:
        """The results of the main agent's tools, in order."""
        return [str(node.message.content) for node in self.main.nodes if node.message.role == "tool"]


class Lines:
    """A policy that gives each conversation its lines, one for each call, and then ends it.

    Args:
        family: of the model.
        main: of the main agent.
        sub: of the sub-agents, by a word in their prompt.
        summary: of any conversation that is summarised, beside its lines.
    """

    def __init__(
        self, family: Family, main: Sequence[Says], sub: Mapping[str, Sequence[Says]], summary: Says | None = None
    ) -> None:
        self._summary = summary
        self._end = Says(family.answer("Done.", reasoning="Enough."))
        self._lines = {"": main, **sub}
        self._given: Counter[str] = Counter()

    def __call__(self, model: str, prompt: str, /) -> Says:
        if self._summary is not None and "You are a context summarization agent" in prompt:
            return self._summary
        word = "" if model == MAIN_MODEL else next(word for word in self._lines if word and word in prompt)
        lines, position = self._lines[word], self._given[word]
        self._given[word] += 1
        says = lines[position] if position < len(lines) else self._end
        return replace(says, text=with_tasks(says.text, [prompt])) if has_tasks(says.text) else says


def tokens(played: Trained) -> float:
    """All tokens of the main trace's branches, by those of the one sequence that a conversation without forks has."""
    return sum(len(branch.token_ids) for branch in played.main.branches) / len(
        played.engine.of(MAIN_MODEL)[-1].sequence
    )


def train_client(url: str, family: Family, tokenizer: Path) -> TrainClientConfig:
    """The client of a training run."""
    return TrainClientConfig(
        base_url=url, api_key_var="NO_SUCH_KEY", renderer=family.renderer, renderer_model_name=str(tokenizer)
    )


async def train(
    tokenizer: Path,
    family: Family,
    *segments: Sequence[Says],
    sub: Mapping[str, Sequence[Says]] | None = None,
    sub_family: Family | None = None,
    window: int | None = None,
    token_ids: bool = False,
    summary: Says | None = None,
    first: Any = "segment 0",
    server: Callable[[], Interception] | None = None,
    **harness: Any,
) -> Trained:
    """Play one segment after the other, each to the agent's end.

    Args:
        tokenizer: directory of the tokenizer.
        family: of the model.
        segments: what the model says in each.
        sub: what sub-agents' models say, by a word of their prompt; None = the harness without recursion.
        sub_family: of their model; None = the main agent's.
        window: tokens that a prompt may have.
        token_ids: see `TokenEngine`.
        summary: see `Lines`.
        first: what the user says first.
        server: makes what serves the model calls; None = the role interception.
        harness: fields of the harness.
    """
    lines = Lines(family, [says for segment in segments for says in segment], sub or {}, summary)
    engine = TokenEngine(tokenizer, family, lines, window, sub_family, token_ids)
    made = role_interception(InterceptionServerConfig()) if server is None else server()
    async with engine.serving() as url, made as interception:
        client, other = (train_client(url, each, tokenizer) for each in (family, sub_family or family))
        options = {"recursive": sub is not None, "sub_client": other, "settings": SubSettings(max_turns=50), **harness}
        async with seated(client, interception, **options) as seats:
            for number in range(len(segments)):
                await seats.main_agent.turn(f"segment {number}" if number else first)
        return Trained(seats.main, seats.sub, engine)


def assert_exact(trace: AnyTrace, branch: Any, calls: Sequence[Call]) -> None:
    """A branch is what the engine saw and sampled in these calls: ids, mask and logprobs."""
    for call, following in pairwise(calls):
        assert following.prompt[: len(call.sequence)] == call.sequence
    assert list(branch.token_ids) == calls[-1].sequence
    sampled = {len(call.prompt) + position: logprob for call in calls for position, logprob in enumerate(call.logprobs)}
    assert [position for position, own in enumerate(branch.sampled_mask) if own] == list(sampled)
    logprobs = branch.logprobs  # made anew whenever it is asked for
    assert [logprobs[position] for position in sampled] == pytest.approx(list(sampled.values()), rel=1e-6)


def assert_one_exact_branch(played: Trained) -> None:
    """The main trace is one branch, token for token what the engine saw and sampled."""
    trace, calls = played.main, played.engine.of(MAIN_MODEL)
    assert trace.ok, trace.errors
    assert trace.info.get("history") is None
    assert (trace.num_branches, trace.metrics["history_forks"]) == (1, 0)
    assert_exact(trace, trace.branches[0], calls)
