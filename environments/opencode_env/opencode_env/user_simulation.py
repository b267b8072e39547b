"""Simulated users as a feature of an environment: an agent's rollout with a user on the other side.

The prompt stays the agent's first message; the user answers what the agent says until one of them
ends it. What fails on the user's side is an error of the rollout, never a score.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import openai
import verifiers.v1 as vf
from pydantic import Field, ValidationError
from pydantic_config import BaseConfig
from rollout_sandbox.outcomes import Outcome
from verifiers.v1.agent import Agent, Agents, Interaction
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.errors import EnvError, HarnessError, RolloutError, TaskError
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import Task, TaskData

from opencode_env.asked_user import AskedUser
from opencode_env.cli_agent.features import Feature, Run
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.errors import BrokenUserError

COLUMN = "user_simulation"
"""The column of a row that says who its user is."""
USER_RECORD = "user_simulation"
"""Key in `trace.info` of who played the user (`played_by`), and how often they spoke (`turns`)."""

STOP = "###STOP###"
"""What a user's model says when it wants no more."""
USER_STOP = "user_stop"
"""The stop condition of a rollout whose user wanted no more."""
MAX_USER_TURNS = "max_user_turns"
"""The stop condition of a rollout whose user had said all that a user may say."""

_STOPS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")
"""The words of the users of the family that eval-protocol plays."""
_REFUSALS = (400, 413, 422)
"""What model endpoints say to a request that they will not answer, as it is too long for one."""

PERSONA = """\
You are the user in a conversation with an assistant. You are a person, and the assistant works for you.

This is who you are and what you want:
{instructions}

- Write what this person would write: one short message at a time, in plain words.
- Say what you know when it is asked for or needed, and make nothing up that is not written above.
- The work is the assistant's: never do it yourself, and never speak as the assistant.
- When you have what you wanted, or are sure that you will not get it, answer with {stop} and nothing else."""


class UserSimulationConfig(BaseConfig):
    """Sets how the users are played that rows ask for (a column `user_simulation`)."""

    max_turns: int = Field(20, ge=1)
    """Messages of the user in one conversation, beyond the row's prompt; then the rollout ends."""
    persona: str = PERSONA
    """System prompt of a user that a model plays; `{instructions}` is the row's `system_prompt`, `{stop}` the word with
    which the user ends the conversation."""


def asked_user(task: Task[Any, Any, Any]) -> AskedUser | None:
    """The user that the task's row asks for, in a field of its own or among its other columns; a `TaskError` where it
    cannot be played."""
    value = getattr(task.data, COLUMN, None) or getattr(task.data, "info", {}).get(COLUMN)
    if not value:
        return None
    try:
        asked = AskedUser.model_validate(value)
    except ValidationError as error:
        raise TaskError(f"task {task.data.idx}: its {COLUMN} cannot be played: {error}") from error
    return asked if asked.plays else None


class ScriptedUser:
    """Says the lines of a script, whatever it is told, to the last one or the first that holds a word of the end."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.ending = USER_STOP
        """Why there is no further message, once there is none."""
        self._lines = iter(lines)

    async def answer(self, reply: str | None) -> str | None:
        """Return what the user says to the agent's `reply`, or first, to None; None = the conversation is over."""
        line = next(self._lines, None)
        return None if line is None or _wants_no_more(line) else line


class PlayedUser:
    """A model, in an interaction of its own whose answers are to the agent's replies."""

    def __init__(self, side: Interaction) -> None:
        self.ending = USER_STOP
        self._side = side

    async def answer(self, reply: str | None) -> str | None:
        """Return what the model says, first to a greeting that only the user hears. Where it failed, an `EnvError`, or
        a `BrokenUserError` if the agent's words can be the reason."""
        refused = EnvError if reply is None else BrokenUserError
        heard = "Hello! How can I help you?" if reply is None else reply or "(The assistant has nothing to say.)"
        segment = await self._side.turn(heard)
        if segment.terminated:
            if (error := self._side.trace.last_error) is not None:
                kind = refused if error.status_code in _REFUSALS else EnvError
                raise kind(f"the user could not be played: {error.type}: {error.message}")
            self.ending = MAX_USER_TURNS
            return None
        if _wants_no_more(segment.last_reply):
            return None
        if not segment.last_reply.strip():
            raise refused("the user could not be played: its model said nothing")
        return segment.last_reply


User = ScriptedUser | PlayedUser
"""The other side of a conversation."""


def _wants_no_more(line: str) -> bool:
    """Whether a line ends the conversation; the agent never reads such a line."""
    return any(word in line for word in _STOPS)


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
        """Have the model say one thing to the conversation so far; a `HarnessError` where it was not answered."""
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


class SimulatedUsers(Feature):
    """Plays them from the seat `user`, which runs no program and has the configuration `seat`; it has to be the last
    feature, since it runs the agent."""

    outcomes = (
        Outcome("a row has a `user_simulation` that cannot be played", "mend the row", errors=("TaskError",)),
        Outcome("the model of a simulated user failed", "the endpoint", errors=("EnvError",)),
        BrokenUserError.outcome,
    )

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
            rollout.outside = "a simulated user holds what is not a file of the sandbox"
            await self.converse(task, agents, box, rollout.begin, asked)

    async def converse(
        self,
        task: Task[Any, Any, Any],
        agents: Agents,
        box: Runtime,
        on_trace: Callable[[AnyTrace], None],
        asked: AskedUser,
    ) -> None:
        """Run the agent in `box` with the user that was `asked` for, to the end of its scoring."""
        traces: list[AnyTrace] = []

        def minted(trace: AnyTrace) -> None:
            traces.append(trace)
            trace.info[USER_RECORD] = {"played_by": "script" if asked.script else agents.user.ctx.model, "turns": 0}
            on_trace(trace)

        if asked.script is None:
            cast_user(agents.user, self._seat, asked)
        async with AsyncExitStack() as outliving:
            try:
                async with agents.agent.interaction(task, runtime=box, on_trace=minted) as talk:
                    opened = talk.trace.task.data  # a world's first observation is in its prompt by now
                    user = await outliving.enter_async_context(_user(opened, agents, asked, self._options.persona))
                    await _exchange(talk, user, self._options.max_turns)
            except RolloutError:
                if not (traces and traces[-1].is_completed and traces[-1].errors):
                    raise  # else it stands on the trace, as that of a run without a user


async def _exchange(talk: Interaction, user: User, max_turns: int) -> None:
    record = talk.trace.info[USER_RECORD]
    said: str | None = None
    if talk.trace.task.data.prompt is None:
        said = await user.answer(None)
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
async def _user(data: vf.TaskData, agents: Agents, asked: AskedUser, persona: str) -> AsyncIterator[User]:
    if asked.script is not None:
        yield ScriptedUser(asked.script)
        return
    persona = persona.replace("{stop}", STOP).replace("{instructions}", asked.system_prompt)
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
