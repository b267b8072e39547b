"""Whole rollouts of `OpenCodeRLMEnv`: real binary, real sandbox, scripted model; and what they left behind."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Policy, RecordedRequest, Reply, ScriptedModel
from opencode_rlm.env import OpenCodeRLMEnv, OpenCodeRLMEnvConfig
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.env import RunSlot
from verifiers.v1.episode import Episode

from tests.support.replies import call
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL, SUB_MODEL

QUESTION = "Do what the script says."


@dataclass(frozen=True)
class Played:
    """What one episode left behind."""

    episode: Episode[Any, Any, Any]
    requests: Sequence[RecordedRequest]
    """What arrived at the model endpoint."""

    @property
    def main(self) -> AnyTrace:
        """The main agent's trace."""
        return self.episode.traces[0]

    @property
    def sub(self) -> AnyTrace:
        """The sub trace."""
        (trace,) = self.episode.traces[1:]
        return trace

    @property
    def problems(self) -> list[str]:
        """Everything that went wrong outside the policy."""
        recorded = [*self.episode.errors, *(error for trace in self.episode.traces for error in trace.errors)]
        return [f"{error.type}: {error.message}" for error in recorded]

    @property
    def error(self) -> str:
        """Type and message of what ended the rollout."""
        error = self.main.last_error
        assert error is not None
        return f"{error.type}: {error.message}"

    def tool_results(self) -> list[str]:
        """Contents of the main agent's tool messages, in order."""
        return [str(message.content) for message in self.main.tool_messages]

    def asked(self, model: str) -> list[RecordedRequest]:
        """The requests for one model."""
        return [request for request in self.requests if request.body["model"] == model]


class PolicyByRole:
    """Answers the main model from a list of steps, and the sub model with a policy of its own."""

    def __init__(self, steps: Sequence[Reply], sub: Policy) -> None:
        self._steps = steps
        self._sub = sub

    def __call__(self, request: ChatRequest, /) -> Reply:
        if request.model == SUB_MODEL:
            return self._sub(request)
        return self._steps[min(request.turn, len(self._steps) - 1)]


def task(prompt: str, agent: str = "general") -> Reply:
    """A turn that starts a sub-agent."""
    return call("task", description="a job", prompt=prompt, subagent_type=agent)


@asynccontextmanager
async def serving(
    model: ScriptedModel, directory: Path, rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None
) -> AsyncIterator["ServedRows"]:
    """The environment over these rows, serving, with the sub seat on `SUB_MODEL`."""
    path = write_rows(directory / "tasks.jsonl", rows)
    fields = {"sub_model": SUB_MODEL, **(options or {})}
    config = OpenCodeRLMEnvConfig.model_validate({"taskset": {"id": "opencode-rlm", "dataset": str(path)}, **fields})
    env = OpenCodeRLMEnv(config)
    async with env.serving():
        yield ServedRows(env, model)


class ServedRows:
    """A serving environment over some rows, and the model behind it."""

    def __init__(self, env: OpenCodeRLMEnv, model: ScriptedModel) -> None:
        self.env = env
        self.model = model
        client = EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        self.context = ModelContext(model=MAIN_MODEL, client=client, sampling=SamplingConfig())

    def slots(self) -> list[RunSlot]:
        """One planned episode per row."""
        return [slot for row in self.env.taskset for slot in self.env.slots(row)]

    async def play_row(self, name: str) -> Played:
        """Play the row of that id."""
        (slot,) = (slot for slot in self.slots() if slot.task.data.id == name)
        return await self.play(slot)

    async def play(self, slot: RunSlot) -> Played:
        """Play one planned episode."""
        seen = len(self.model.requests)
        episode = await self.env.run_slot(slot, self.context)
        return Played(episode, self.model.requests[seen:])


async def play(
    directory: Path,
    steps: Sequence[Reply],
    sub: Policy,
    *,
    options: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    **row: Any,
) -> Played:
    """Play one rollout: the main model's turns are `steps`, the sub model is a policy."""
    async with ScriptedModel(PolicyByRole(steps, sub), **(server or {})) as model:
        rows = [{"id": "one", "question": QUESTION, "answer": "done", **row}]
        async with serving(model, directory, rows, options) as served:
            (slot,) = served.slots()
            return await served.play(slot)
