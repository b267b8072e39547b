"""A conversation with the real binary and a training client, and what makes its traces fit to train on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.interception import SubRollout, SubSettings
from opencode_env.cli_agent.interception.serving import role_interception
from opencode_env.cli_agent.sandbox import LocalSandboxConfig, provision_confined
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.opencode import OpenCodeHarness, OpenCodeHarnessConfig
from opencode_rlm.harness_config import OpenCodeRLMHarnessConfig
from verifiers.v1.agent import make_agent
from verifiers.v1.clients import TrainClientConfig
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import Runtime

from tests.history.segments import MAIN, SUB
from tests.support.families import Family
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
    """

    def __init__(self, family: Family, main: Sequence[Says], sub: Mapping[str, Sequence[Says]]) -> None:
        self._end = Says(family.answer("Done.", reasoning="Enough."))
        self._lines = {"": main, **sub}
        self._given: Counter[str] = Counter()

    def __call__(self, model: str, prompt: str, /) -> Says:
        word = "" if model == MAIN else next(word for word in self._lines if word and word in prompt)
        lines, position = self._lines[word], self._given[word]
        self._given[word] += 1
        return lines[position] if position < len(lines) else self._end


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
    window: int | None = None,
    first: Any = "segment 0",
    **harness: Any,
) -> Trained:
    """Play one segment after the other, each to the agent's end.

    Args:
        tokenizer: directory of the tokenizer.
        family: of the model.
        segments: what the model says in each.
        sub: what sub-agents' models say, by a word of their prompt; None = the harness without recursion.
        window: tokens that a prompt may have.
        first: what the user says first.
        harness: fields of the harness.
    """
    lines = Lines(family, [says for segment in segments for says in segment], sub or {})
    engine = TokenEngine(tokenizer, family, lines, window)
    async with engine.serving() as url, role_interception(InterceptionServerConfig()) as interception:
        client, local = train_client(url, family, tokenizer), vf.SubprocessConfig()
        config: OpenCodeHarnessConfig = (
            OpenCodeHarnessConfig(id="opencode-env", **harness)
            if sub is None
            else OpenCodeRLMHarnessConfig(id="opencode-rlm", **harness)
        )
        seat = vf.AgentConfig(harness=config, runtime=local, model=MAIN, client=client)
        agent = make_agent(seat, interception=interception)
        null = NullHarnessConfig(id="null")
        other = make_agent(vf.AgentConfig(harness=null, runtime=local, model=SUB, client=client))
        sides: list[SubRollout] = []

        def minted(main: AnyTrace) -> None:
            sides.append(SubRollout(main, other, SubSettings()))
            sides[-1].begin()

        assert isinstance(agent.harness, OpenCodeHarness)
        task: Any = vf.Task(vf.TaskData(idx=0, prompt=None))
        box: Runtime
        async with (
            provision_confined(LocalSandboxConfig(), await agent.harness.local_binds()) as box,
            agent.interaction(task, runtime=box, on_trace=minted) as conversation,
        ):
            for number in range(len(segments)):
                await conversation.turn(f"segment {number}" if number else first)
        (side,) = sides
        await side.end()
        return Trained(side.main, side.trace, engine)


def assert_exact(trace: AnyTrace, branch: Any, calls: Sequence[Call]) -> None:
    """A branch is what the engine saw and sampled in these calls: ids, mask and logprobs."""
    for call, following in pairwise(calls):
        assert following.prompt[: len(call.sequence)] == call.sequence
    assert list(branch.token_ids) == calls[-1].sequence
    sampled = {len(call.prompt) + position: logprob for call in calls for position, logprob in enumerate(call.logprobs)}
    assert [position for position, own in enumerate(branch.sampled_mask) if own] == list(sampled)
    assert [branch.logprobs[position] for position in sampled] == pytest.approx(list(sampled.values()), rel=1e-6)


def assert_one_exact_branch(played: Trained) -> None:
    """The main trace is one branch, token for token what the engine saw and sampled."""
    trace, calls = played.main, played.engine.of(MAIN)
    assert trace.ok, trace.errors
    assert trace.info.get("history") is None
    assert (trace.num_branches, trace.metrics["history_forks"]) == (1, 0)
    assert_exact(trace, trace.branches[0], calls)
