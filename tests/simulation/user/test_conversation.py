"""A conversation as its two sides see it, without an agent's program."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.user_simulation.asked import AskedUser
from opencode_env.user_simulation.conversation import converse
from opencode_env.user_simulation.options import STOP, UserSimulationConfig
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


async def test_a_played_user_knows_the_prompt_that_the_setup_filled_and_outlives_the_agent() -> None:
    noted: list[str] = []
    agents: Any = SimpleNamespace(
        agent=Side("agent", "Seven.", noted, "Go. You are at S."), user=Side("user", STOP, noted, None)
    )
    task = vf.Task(vf.TaskData(idx=0, prompt="Go. {observation}"))
    asked = AskedUser(enabled=True, system_prompt="You want to get to G.")
    unused: Any = None
    await converse(task, agents, unused, lambda _: None, asked, UserSimulationConfig(), AgentConfig())
    assert noted == ["agent opened", "user opened", "agent closed: user_stop", "user closed: None"]
    (persona,) = agents.user.systems
    assert "Go. You are at S." in persona
    assert "{observation}" not in persona
    assert "You want to get to G." in persona


@pytest.mark.parametrize("prompt", ["Go.", None])
@pytest.mark.parametrize("end", [STOP, f"Thank you. {STOP}", "###TRANSFER###", "Something else. ###OUT-OF-SCOPE###"])
async def test_the_word_that_ends_a_conversation_is_never_said_to_the_agent(end: str, prompt: str | None) -> None:
    noted: list[str] = []
    agents: Any = SimpleNamespace(agent=Side("agent", "Yes?", noted, prompt), user=Side("user", "?", noted, None))
    asked = AskedUser(script=["Hello.", end, "More."])
    traces: list[Any] = []
    unused: Any = None
    task = vf.Task(vf.TaskData(idx=0, prompt=prompt))
    await converse(task, agents, unused, traces.append, asked, UserSimulationConfig(), AgentConfig())
    assert agents.agent.heard == [*([None] if prompt else []), "Hello."]
    assert noted == ["agent opened", "agent closed: user_stop"]
    assert traces[0].info["user_simulation"] == {"played_by": "script", "turns": 1}
