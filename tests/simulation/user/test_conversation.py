"""A conversation as its two sides see it, without an agent's program."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.asked_user import AskedUser
from opencode_env.user_simulation import STOP, SimulatedUsers, UserSimulationConfig
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.harness import HarnessConfig


class Side:
    """An agent's side of verifiers' interaction: says `reply`, and notes what becomes of it."""

    def __init__(self, name: str, reply: str, noted: list[str], prompt: str | None) -> None:
        self.name, self.reply, self.noted, self.prompt = name, reply, noted, prompt
        self.ctx = SimpleNamespace(model="m")
        self.harness = SimpleNamespace(config=HarnessConfig(id="null"))
        self.systems: list[str | None] = []
        self.heard: list[str | None] = []

    @asynccontextmanager
    async def interaction(
        self, task: vf.Task[Any, Any, Any], on_trace: Callable[[Any], None] = lambda _: None, **_: Any
    ) -> AsyncIterator[Any]:
        """Open a rollout, whose setup fills the prompt."""
        self.systems.append(task.data.system_prompt)
        trace: Any = SimpleNamespace(task=task, info={}, stop_condition=None, is_completed=False, errors=[])
        trace.stop = lambda condition: setattr(trace, "stop_condition", condition)
        on_trace(trace)
        if self.prompt is not None:
            trace.task = vf.Task(task.data.model_copy(update={"prompt": self.prompt}))

        async def turn(said: str | None) -> Any:
            self.heard.append(said)
            return SimpleNamespace(terminated=False, last_reply=self.reply)

        self.noted.append(f"{self.name} opened")
        yield SimpleNamespace(trace=trace, turn=turn)
        self.noted.append(f"{self.name} closed: {trace.stop_condition}")


async def conversed(asked: AskedUser, agent: Side, user: Side, prompt: str | None) -> list[Any]:
    """Lets them converse about a task with that prompt; the agent's traces."""
    traces: list[Any] = []
    agents: Any = SimpleNamespace(agent=agent, user=user)
    unused: Any = None
    task = vf.Task(vf.TaskData(idx=0, prompt=prompt))
    users = SimulatedUsers(UserSimulationConfig(), AgentConfig())
    await users.converse(task, agents, unused, traces.append, asked)
    return traces


async def test_a_played_user_knows_the_prompt_that_the_setup_filled_and_outlives_the_agent() -> None:
    noted: list[str] = []
    agent, user = Side("agent", "Seven.", noted, "Go. You are at S."), Side("user", STOP, noted, None)
    asked = AskedUser(enabled=True, system_prompt="You want to get to G.")
    await conversed(asked, agent, user, "Go. {observation}")
    assert noted == ["agent opened", "user opened", "agent closed: user_stop", "user closed: None"]
    (persona,) = user.systems
    assert persona is not None
    assert "Go. You are at S." in persona
    assert "You want to get to G." in persona
    assert "{observation}" not in persona


@pytest.mark.parametrize("prompt", ["Go.", None])
@pytest.mark.parametrize("end", [STOP, f"Thank you. {STOP}", "###TRANSFER###", "Something else. ###OUT-OF-SCOPE###"])
async def test_the_word_that_ends_a_conversation_is_never_said_to_the_agent(end: str, prompt: str | None) -> None:
    noted: list[str] = []
    agent = Side("agent", "Yes?", noted, prompt)
    asked = AskedUser(script=["Hello.", end, "More."])
    traces = await conversed(asked, agent, Side("user", "?", noted, None), prompt)
    assert agent.heard == [*([None] if prompt else []), "Hello."]
    assert noted == ["agent opened", "agent closed: user_stop"]
    assert traces[0].info["user_simulation"] == {"played_by": "script", "turns": 1}
