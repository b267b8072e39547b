"""Whole rollouts of `OpenCodeEnv` with surroundings: real binary, real sandbox, scripted model."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Policy, RecordedRequest, ScriptedModel
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.episode import Episode

from tests.support.rows import write_rows

MODEL = "org/some-model"


@dataclass(frozen=True)
class Served:
    """A serving environment over some rows, and the model behind it."""

    env: OpenCodeEnv
    model: ScriptedModel

    @property
    def requests(self) -> Sequence[RecordedRequest]:
        """What arrived at the model endpoint."""
        return self.model.requests

    async def play(self, task: int | vf.Task[Any, Any, Any] = 0) -> Episode[Any, Any, Any]:
        """One episode of a task, or of the row of that number."""
        client = EvalClientConfig(base_url=self.model.base_url, api_key_var="NO_SUCH_KEY")
        context = ModelContext(model=MODEL, client=client, sampling=SamplingConfig())
        (slot,) = self.env.slots(list(self.env.taskset)[task] if isinstance(task, int) else task)
        return await self.env.run_slot(slot, context)


@asynccontextmanager
async def serving(directory: Path, policy: Policy, *rows: Mapping[str, Any], **options: Any) -> AsyncIterator[Served]:
    """The environment over these rows, with these options."""
    path = write_rows(directory / "tasks.jsonl", rows or [row("one")])
    config = OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env", "dataset": str(path)}, **options})
    async with ScriptedModel(policy) as model:
        env = OpenCodeEnv(config)
        async with env.serving():
            yield Served(env, model)


def row(name: str, **fields: Any) -> dict[str, Any]:
    """A row that is solved by doing what the script says."""
    return {"id": name, "question": f"row {name}: do what the script says", "answer": "done", **fields}


def problems(episode: Episode[Any, Any, Any]) -> list[str]:
    """Everything that went wrong outside the policy."""
    recorded = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    return [f"{error.type}: {error.message}" for error in recorded]


def tool_results(trace: AnyTrace) -> list[str]:
    """Contents of the tool messages, in order."""
    return [str(message.content) for message in trace.tool_messages]
