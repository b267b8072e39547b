"""Simulated users as a feature of an environment: an agent's rollout with a user on the other side.

Invariant: the prompt stays the agent's, and is its first turn; the user answers what the agent says until one of them
ends it. What fails on the user's side is an error of the rollout, never a score.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import openai
import verifiers.v1 as vf
from verifiers.v1.agent import Agent, Agents, Interaction
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import EnvError, HarnessError, RolloutError
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import Task, TaskData

from opencode_env.cli_agent.features import Feature, Run
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.user_simulation.asked import STOP, AskedUser, UserSimulationConfig, asked_user
from opencode_env.user_simulation.sides import MAX_USER_TURNS, PlayedUser, ScriptedUser, User


class UserHarness(Harness[HarnessConfig]):
    """Asks the model from this process, through the interception like every agent."""

    APPENDS_SYSTEM_PROMPT: ClassVar[bool] = True
    SUPPORTS_RESUME: ClassVar[bool] = True
    EXECUTES_CODE: ClassVar[bool] = False
    NEEDS_CONTAINER: ClassVar[bool] = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: AnyTrace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """Have the model say one thing to the conversation so far.

        Raises:
            HarnessError: it was not answered; who serves the calls knows why.
        """
        system, prompt = self.resolve_prompt(data)
        said = [] if prompt is None or isinstance(prompt, str) else [message_to_wire(message) for message in prompt]
        messages = [{"role": "system", "content": system}, *said]
        client = openai.AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=600.0, max_retries=3)
        async with client:
            try:
                await client.chat.completions.create(model=ctx.model, messages=messages)  # type: ignore[arg-type]
            except openai.OpenAIError as error:
                raise HarnessError(f"the user's model was not to be had: {error}") from error
        return ProgramResult(0, "", "")


USER_RECORD = "user_simulation"
"""Key in `trace.info` of who played the user (`played_by`), and how often they spoke (`turns`)."""


class SimulatedUsers(Feature):
    """Plays them from the seat `user`, which runs no program and has the configuration `seat`; it has to be the last
    feature, since it runs the agent."""

    def __init__(self, options: UserSimulationConfig, seat: AgentConfig) -> None:
        self._options = options
        self._seat = seat

    def setup(self, agents: Agents) -> None:
        """A user is part of the world, and what it says no training data."""
        agents.user.trainable = False

    async def run(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout, run: Run) -> None:
        """Run the agent with the user that the row asks for, if it asks for one."""
        asked = asked_user(task)
        if asked is None:
            await run(task)
        else:
            rollout.refuse_turns("a simulated user holds what is not a file of the sandbox")
            await converse(task, agents, box, rollout.begin, asked, self._options, self._seat)


async def converse(
    task: Task[Any, Any, Any],
    agents: Agents,
    box: Runtime,
    on_trace: Callable[[AnyTrace], None],
    asked: AskedUser,
    options: UserSimulationConfig,
    seat: AgentConfig,
) -> None:
    """Run the agent in `box` with the user that was `asked` for, to the end of its scoring. `seat` is the configuration
    of the `user` seat, for what it says itself and does not take from the run."""
    traces: list[AnyTrace] = []

    def minted(trace: AnyTrace) -> None:
        traces.append(trace)
        trace.info[USER_RECORD] = {"played_by": "script" if asked.script else agents.user.ctx.model, "turns": 0}
        on_trace(trace)

    if asked.script is None:
        cast_user(agents.user, seat, asked)
    async with AsyncExitStack() as outliving:
        try:
            async with agents.agent.interaction(task, runtime=box, on_trace=minted) as talk:
                opened = talk.trace.task.data  # a world's first observation is in its prompt by now
                user = await outliving.enter_async_context(_user(opened, agents, asked, options))
                await _exchange(talk, user, options.max_turns)
        except RolloutError:
            if not (traces and traces[-1].is_completed and traces[-1].errors):
                raise  # else it stands on the trace, as that of a run without a user


async def _exchange(talk: Interaction, user: User, max_turns: int) -> None:
    record = talk.trace.info[USER_RECORD]
    said: str | None = None
    if talk.trace.task.data.prompt is None:
        said = await user.open()
        if said is None:
            raise EnvError("the task has no prompt, and its user ended the conversation without a word")
        record["turns"] = 1
    while True:
        segment = await talk.turn(said)
        if segment.terminated or talk.trace.stop_condition is not None:
            return
        if record["turns"] >= max_turns:
            talk.trace.stop(MAX_USER_TURNS)
            return
        said = await user.answer(segment.last_reply)
        if said is None:
            talk.trace.stop(user.ending)
            return
        record["turns"] += 1


@asynccontextmanager
async def _user(
    data: vf.TaskData, agents: Agents, asked: AskedUser, options: UserSimulationConfig
) -> AsyncIterator[User]:
    if asked.script is not None:
        yield ScriptedUser(asked.script)
        return
    persona = options.persona.replace("{stop}", STOP).replace("{instructions}", asked.system_prompt)
    if data.prompt is not None:
        persona += f"\n\nYou have opened the conversation with this message:\n{data.prompt_text}"
    played = vf.Task(vf.TaskData(idx=data.idx, prompt=None, system_prompt=persona))
    async with agents.user.interaction(played) as side:
        yield PlayedUser(side)


def cast_user(agent: Agent, seat: AgentConfig, asked: AskedUser) -> None:
    """Give the seat its harness, and what the row says of model and sampling where the seat says nothing."""
    agent.harness = UserHarness(agent.harness.config)
    if seat.model is None and asked.llm is not None:
        agent.ctx = replace(agent.ctx, model=asked.llm)
        agent.config = agent.config.model_copy(update={"model": asked.llm})
    if seat.sampling is None and asked.llm_args:
        agent.ctx = replace(agent.ctx, sampling=vf.SamplingConfig.model_validate(asked.llm_args))
