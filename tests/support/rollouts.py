"""One rollout of the OpenCode harness alone: real binary, real sandbox, scripted model, a task that always scores 1."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Policy, RecordedRequest, Reply, ScriptedModel, ScriptPolicy
from verifiers.v1.agent import make_agent
from verifiers.v1.interception import Interception
from verifiers.v1.runtimes import Runtime

from tests.support.places import Place
from tests.support.tasks import SeenTask, seen_data

MODEL = "org/some-model:v1"
"""A model name with everything in it that a separator could trip over."""


@dataclass(frozen=True)
class Played:
    """What one rollout left behind."""

    trace: AnyTrace
    requests: Sequence[RecordedRequest]
    """What arrived at the model endpoint."""
    seconds: float

    @property
    def record(self) -> Mapping[str, Any]:
        """The harness's record on the trace."""
        found: Mapping[str, Any] = self.trace.info["agent"]
        return found

    @property
    def seen(self) -> str:
        """Output of the task's `after` command."""
        return str(self.trace.info["seen"])

    @property
    def scored(self) -> bool:
        """Whether a reward stands on the trace."""
        return any(reward is not None for reward in self.trace.rewards.values())

    @property
    def error(self) -> str:
        """Type and message of the error that ended the rollout."""
        error = self.trace.last_error
        assert error is not None
        return f"{error.type}: {error.message}"

    def tool_results(self) -> list[str]:
        """The contents of the tool messages, in order."""
        return [str(message.content) for message in self.trace.messages if message.role == "tool"]


def seat(place: Place, base_url: str, harness: Mapping[str, Any], settings: Mapping[str, Any]) -> vf.AgentConfig:
    """The configuration of an agent that runs OpenCode in `place` against the endpoint `base_url`."""
    return vf.AgentConfig(
        harness=OpenCodeHarnessConfig(id="opencode-env", **harness),
        runtime=place.runtime,
        model=MODEL,
        client=vf.EvalClientConfig(base_url=base_url, api_key_var="NO_SUCH_KEY"),
        **settings,
    )


def policy_of(script: Policy | Sequence[Reply] | Reply) -> Policy:
    """A single reply or a sequence of them as a policy."""
    if isinstance(script, Reply):
        return ScriptPolicy.of(script)
    return ScriptPolicy.of(*script) if isinstance(script, Sequence) else script


During = Callable[[Runtime, ScriptedModel], Awaitable[None]]
"""What happens to the sandbox or the model while the agent works."""


@asynccontextmanager
async def beside(during: During | None, box: Runtime, model: ScriptedModel) -> AsyncIterator[None]:
    """Let `during` run while the body does; its failure is raised at the end."""
    running = asyncio.ensure_future(during(box, model)) if during is not None else None
    try:
        yield
    finally:
        if running is not None:
            running.cancel()
            (outcome,) = await asyncio.gather(running, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise outcome


async def play(
    place: Place,
    script: Policy | Sequence[Reply] | Reply,
    *,
    harness: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    task: type[SeenTask[Any]] = SeenTask,
    during: During | None = None,
    interception: Interception | None = None,
    **data: Any,
) -> Played:
    """Run one rollout.

    Args:
        place: the sandbox.
        script: what the model says.
        harness: fields of `OpenCodeHarnessConfig`.
        settings: further fields of the seat, such as limits.
        server: arguments of the `ScriptedModel`.
        task: class of the task.
        during: runs beside the agent, and is cancelled when the agent has ended.
        interception: serves the model calls; None = verifiers' own server.
        data: fields of the task's data.
    """
    async with ScriptedModel(policy_of(script), **(server or {})) as model:
        async with serving(place, interception) as serves:
            agent = make_agent(seat(place, model.base_url, harness or {}, settings or {}), interception=serves)
            started = time.monotonic()
            async with place.box(agent) as box, beside(during, box, model):
                trace = await agent.run(task(seen_data(**data)), runtime=box)
        return Played(trace, model.requests, time.monotonic() - started)


def assert_extends(requests: Sequence[Mapping[str, Any]]) -> None:
    """Each request (its body) to the endpoint begins with the one before."""
    for before, after in pairwise(requests):
        messages = before["messages"]
        assert after["messages"][: len(messages)] == messages
        assert after.get("tools") == before.get("tools")


def serving(place: Place, given: Interception | None) -> AbstractAsyncContextManager[Interception | None]:
    """What serves the model calls: what the test has started, else what the place needs."""
    return place.interception() if given is None else nullcontext(given)


@asynccontextmanager
async def lone_box(place: Place) -> AsyncIterator[Runtime]:
    """A sandbox without a rollout."""
    async with place.box(make_agent(seat(place, "http://127.0.0.1:9/v1", {}, {}))) as box:
        yield box


@asynccontextmanager
async def conversation(
    place: Place,
    script: Policy | Sequence[Reply],
    *,
    harness: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    interception: Interception | None = None,
    **data: Any,
) -> AsyncIterator[tuple[Any, ScriptedModel]]:
    """An open interaction with the agent, and the model that answers it; the task has no prompt of its own."""
    model_server = ScriptedModel(policy_of(script), **(server or {}))
    async with model_server as model, serving(place, interception) as serves:
        agent = make_agent(seat(place, model.base_url, harness or {}, settings or {}), interception=serves)
        data = {"prompt": None, **data}
        async with place.box(agent) as box, agent.interaction(SeenTask(seen_data(**data)), runtime=box) as talk:
            yield talk, model
