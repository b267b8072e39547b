"""A light agent: a coroutine of this process in a real rollout, behind our server, in a confined sandbox."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import verifiers.v1 as vf
from opencode_env.cli_agent.guard import guarded, guarded_task
from opencode_env.cli_agent.interception import MARK_HEADER
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.cli_agent.outcomes import AgentErrors
from opencode_env.cli_agent.rollout import Patience, rollout_of
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Policy, Reply, ScriptedModel
from verifiers.v1.agent import make_agent
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses.bash import BashHarnessConfig
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.runtimes import ProgramResult, Runtime

from tests.support.places import Confined
from tests.support.rollouts import policy_of
from tests.support.tasks import SeenTask, seen_data

TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]


@dataclass
class Asking:
    """What the agent has: its model, and the rollout that it is in."""

    endpoint: str
    secret: str
    trace: AnyTrace
    runtime: Runtime
    mark: str
    history: list[dict[str, Any]] = field(default_factory=list)
    streams: bool = True

    async def ask(self, text: str = "Go on.", **headers: str) -> int:
        """One call of its own program; the status of the answer."""
        return await self.post([*self.history, {"role": "user", "content": text}], {MARK_HEADER: self.mark, **headers})

    async def program_asks(self, text: str = "the program's") -> int:
        """One call of a program that it has started."""
        return await self.post([{"role": "user", "content": text}], {})

    async def post(self, messages: Sequence[Mapping[str, Any]], headers: Mapping[str, str]) -> int:
        body: dict[str, Any] = {"model": "m", "messages": list(messages), "tools": TOOLS, "max_tokens": 32_000}
        body |= {"stream": True, "stream_options": {"include_usage": True}} if self.streams else {}
        bearer = {"Authorization": f"Bearer {self.secret}"}
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{self.endpoint}/chat/completions", json=body, headers={**bearer, **headers}) as answer,
        ):
            await answer.read()
            return answer.status


Doing = Callable[[Asking], Awaitable[int]]
"""What the agent does, and its exit code."""


class LightHarness(Harness[BashHarnessConfig]):
    """Runs a coroutine instead of a program, which sends a failed call three times."""

    def __init__(self, doing: Doing, patient_for: float) -> None:
        super().__init__(BashHarnessConfig(id="bash"))
        self._doing = doing
        self._patient_for = patient_for

    def patience(self) -> Patience:
        return Patience(sends=3, seconds=self._patient_for)

    async def launch(
        self, ctx: Any, trace: AnyTrace, runtime: Runtime, endpoint: str, secret: str, *_: Any, **__: Any
    ) -> ProgramResult:
        asking = Asking(endpoint, secret, trace, runtime, f"{rollout_of(trace).program.new_run()}:light")
        return ProgramResult(await self._doing(asking), "", "")

    async def resume(self, *arguments: Any, **_: Any) -> ProgramResult:
        return await self.launch(*arguments)

    async def cleanup(self, trace: AnyTrace, runtime: Runtime) -> None:
        rollout_of(trace).program.forget()


async def play_light(
    doing: Doing,
    script: Policy | Sequence[Reply] | Reply,
    *,
    agent_errors: AgentErrors = "score",
    patient_for: float = 3600.0,
    segments: int = 1,
    plays: type[ScriptedModel] = ScriptedModel,
    **settings: Any,
) -> AnyTrace:
    """The trace of one rollout of a light agent, whose task always scores 1.

    Args:
        doing: what the agent does in every segment.
        script: what the model says.
        agent_errors: the option.
        patient_for: seconds that the agent waits for an answer.
        segments: how often a user speaks.
        plays: what plays the model.
        settings: further fields of the seat, such as limits.
    """
    async with (
        plays(policy_of(script)) as model,
        role_interception(InterceptionServerConfig()) as server,
    ):
        seat = vf.AgentConfig(
            harness=BashHarnessConfig(id="bash"),  # by its id; the other stands in its place below
            runtime=Confined().runtime,
            model="m",
            client=vf.EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY"),
            **settings,
        )
        agent = make_agent(seat, interception=server)
        agent.harness = guarded(LightHarness(doing, patient_for), contained=True, agent_errors=agent_errors)
        async with Confined().box(agent) as box:
            if segments == 1:
                return await agent.run(guarded_task(SeenTask(seen_data())), runtime=box)
            task = guarded_task(SeenTask(seen_data(prompt=None)))
            async with agent.interaction(task, runtime=box) as talk:
                for _ in range(segments):
                    await talk.turn("Go on.")
            return talk.trace
