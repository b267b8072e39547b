"""A conversation of several segments with the real binary behind the role interception, the model strict."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import verifiers.v1 as vf
from opencode_env.cli_agent.interception import SubRollout, SubSettings
from opencode_env.cli_agent.interception.serving import role_interception
from opencode_env.cli_agent.sandbox import LocalSandboxConfig, provision_confined
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.opencode import OpenCodeHarness, OpenCodeHarnessConfig
from opencode_env.scripted_model import ChatRequest, RecordedRequest, Reply, ScriptedModel
from opencode_rlm.harness_config import OpenCodeRLMHarnessConfig
from verifiers.v1.agent import make_agent
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import Runtime

MAIN, SUB = "org/main-model", "org/sub-model"
DONE = Reply(text="Done.")

AnyTask = vf.Task[Any, Any, Any]


class Lines:
    """A policy that gives each conversation its lines, one for each request, and then ends it.

    Args:
        main: of the main agent.
        sub: of the sub-agents, by a word in their prompt.
    """

    def __init__(self, main: Sequence[Reply], sub: Mapping[str, Sequence[Reply]]) -> None:
        self.said: list[Reply] = []
        """Everything that the main agent's model said."""
        self._main = main
        self._sub = sub
        self._given: Counter[str] = Counter()

    def __call__(self, request: ChatRequest, /) -> Reply:
        word = "" if request.model == MAIN else next((word for word in self._sub if word in request.prompt), "")
        lines = self._main if request.model == MAIN else self._sub.get(word, ())
        position = self._given[word] if request.model == MAIN else request.turn  # two of one prompt speak at once
        self._given[word] += 1
        reply = lines[position] if position < len(lines) else DONE
        if request.model == MAIN:
            self.said.append(reply)
        return reply


@dataclass(frozen=True)
class Talk:
    """What one conversation left behind."""

    main: AnyTrace
    sub: AnyTrace
    requests: Sequence[RecordedRequest]
    """What arrived at the model endpoint."""
    said: Sequence[Reply]

    @property
    def refused(self) -> list[RecordedRequest]:
        """Requests that a strict provider does not take."""
        return [request for request in self.requests if request.outcome == "refused"]

    @property
    def answers(self) -> list[Any]:
        """Every answer of the main trace, in order."""
        return [node.message for node in self.main.nodes if node.sampled]

    @property
    def results(self) -> list[str]:
        """The results of the main agent's tools, in order."""
        return [str(node.message.content) for node in self.main.nodes if node.message.role == "tool"]


async def talk(
    *segments: Sequence[Reply],
    sub: Mapping[str, Sequence[Reply]] | None = None,
    pieces: int = 7,
    strict: bool = True,
    during: Any = None,
    settings: SubSettings | None = None,
    **harness: Any,
) -> Talk:
    """Play one segment after the other, each to the agent's end.

    Args:
        segments: what the model says in each.
        sub: what sub-agents' models say, by a word of their prompt; None = the harness without recursion.
        pieces: characters of a piece of a stream.
        strict: whether the model refuses what a strict provider refuses.
        during: called with the sandbox before each further segment.
        settings: of the sub calls.
        harness: fields of the harness.
    """
    policy = Lines([reply for segment in segments for reply in segment], sub or {})
    async with (
        ScriptedModel(policy, strict=strict, chunk_characters=pieces) as model,
        role_interception(InterceptionServerConfig()) as interception,
    ):
        client = vf.EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        local = vf.SubprocessConfig()
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
            sides.append(SubRollout(main, other, settings or SubSettings()))
            sides[-1].begin()

        assert isinstance(agent.harness, OpenCodeHarness)
        task: AnyTask = vf.Task(vf.TaskData(idx=0, prompt=None))
        binds = await agent.harness.local_binds()
        box: Runtime
        async with (
            provision_confined(LocalSandboxConfig(), binds) as box,
            agent.interaction(task, runtime=box, on_trace=minted) as conversation,
        ):
            for number in range(len(segments)):
                if number and during is not None:
                    await during(box)
                await conversation.turn(f"segment {number}")
        (side,) = sides
        await side.end()
        return Talk(side.main, side.trace, model.requests, policy.said)
