"""Plays a cassette to a fresh agent: same environment and task, recorded answers, tools run again.

Invariant: no model is asked, and nothing of the recorded rollout but its answers (with `pin` its tool results too)
reaches the new one.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import BaseModel
from verifiers.v1.cli.resolve import narrow_config
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.env import RunSlot
from verifiers.v1.types import Request, TextContentPart, ToolMessage
from verifiers.v1.utils.loaders import load_environment, load_taskset

from opencode_env.scripted_model import ScriptedModel
from opencode_env.scripted_model.cassette import Cassette, CassettePolicy, Difference

_CUT_BEYOND = 20_000
"""verifiers cuts a text that a hook puts in a result's place beyond so many bytes; a part of text it leaves whole."""


class Replay(BaseModel):
    """What came of one replay."""

    task: str
    trace: str
    """Id of the recorded trace."""
    recorded_opencode: str | None
    opencode: str | None
    """The version that was played to; None where no agent ran."""
    turns: int
    """Requests that were answered from the recording."""
    differences: list[Difference]
    """The first is what to look at; later ones may follow from it."""
    replaced: int = 0
    """Tool results that were not as recorded, and for which the recorded ones were put in; with `pin` only."""
    recorded_reward: float | None
    reward: float | None
    error: str | None = None
    """What ended the new rollout, if it failed."""

    @property
    def same(self) -> bool:
        """Whether the new agent asked for exactly the same and did not fail."""
        return not self.differences and self.error is None


class UnplayableError(ValueError):
    """A cassette that cannot be played here; the message says why."""


async def replay(cassette: Cassette, *, opencode: str | None = None, pin: bool = False) -> Replay:
    """Play a cassette once.

    Args:
        opencode: another release of OpenCode than the recorded one.
        pin: whether recorded tool results stand in the place of the new ones.

    Raises:
        UnplayableError: it was continued from a kept turn, or its task or configuration cannot be read any more.
    """
    recorded = cassette.main
    if recorded is None or not any(True for _ in cassette.answers()):
        raise UnplayableError("no answer of a model was recorded")
    if recorded.branch is not None and not recorded.branch.get("resumed"):
        raise UnplayableError("it goes on from a kept turn: replay the rollout that the turn is of")
    config = _config(cassette, opencode)
    task = _task(cassette, config)
    pins = _Pins(cassette.tool_results()) if pin else None
    if pins is not None:
        task = pins.put_on(task)
    env = load_environment(config.env)
    policy = CassettePolicy(cassette)
    async with ScriptedModel(policy, record=False) as model:
        client = EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        async with env.serving():
            context = ModelContext(client=client, model=config.model, sampling=config.sampling)
            episode = await env.run_slot(RunSlot(task), context)
    trace = next((one for one in episode.traces if one.agent.name == "agent"), None)
    errors = [*episode.errors, *([] if trace is None else trace.errors)]
    return Replay(
        task=str(cassette.task.get("key")),
        trace=recorded.id,
        recorded_opencode=recorded.opencode,
        opencode=None if trace is None else trace.info.get("agent", {}).get("version"),
        turns=policy.asked,
        differences=policy.all_differences(),
        replaced=0 if pins is None else len(pins.replaced),
        recorded_reward=recorded.reward,
        reward=trace.reward if trace is not None and trace.rewards and trace.ok else None,
        error=f"{errors[-1].type}: {errors[-1].message}" if errors else None,
    )


def _config(cassette: Cassette, opencode: str | None) -> EvalConfig:
    """The run's configuration, each of its seats behind the one endpoint and tried once."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "eval.json"
            file.write_text(json.dumps(cassette.config))
            kind = narrow_config(EvalConfig, ["@", str(file)])
        config = kind.model_validate(cassette.config)
    except (ValueError, ImportError) as error:
        raise UnplayableError(f"the run's configuration cannot be read: {error}") from error
    config.env.retries.max_retries = 0
    config.env.retries.rules = []
    for name in type(config.env).model_fields:
        seat = getattr(config.env, name)
        if isinstance(seat, AgentConfig):
            seat.client, seat.retries.max_retries, seat.retries.rules = None, 0, []
    if opencode is not None:
        harness: Any = config.env.agent.harness  # type: ignore[attr-defined]
        harness.version = opencode
    return config


def _task(cassette: Cassette, config: EvalConfig) -> vf.Task[Any, Any, Any]:
    """The recorded task, made of its data."""
    taskset = config.env.taskset
    kind = vf.task_type(taskset.id)
    try:
        task: vf.Task[Any, Any, Any] = kind(kind.data_type().model_validate(cassette.task["data"]), config=taskset.task)
        if not getattr(task.data, "shortened", False):
            return task
        whole: vf.Task[Any, Any, Any]
        for whole in load_taskset(taskset):
            if whole.data.model_copy(update={"idx": task.data.idx}).recorded() == task.data:
                return whole
    except (ValueError, KeyError) as error:
        raise UnplayableError(f"the task cannot be read: {error}") from error
    raise UnplayableError("the trace has the task's files by their digest alone, and the run's dataset has them not")


class _Pins:
    """Puts recorded tool results in the place of the new ones."""

    def __init__(self, recorded: Mapping[str, list[Any]]) -> None:
        self._recorded = recorded
        self.replaced: set[tuple[str, int]] = set()
        """The results that were not as recorded, by call and number; each comes with every later request."""

    def put_on(self, task: vf.Task[Any, Any, Any]) -> vf.Task[Any, Any, Any]:
        """The task with a hook that verifiers runs over each request; it looks for hooks on a task's class alone."""
        kind = type(task)

        def pin_results(_task: object, request: Request) -> Request:
            return self._pinned(request)

        made = type(kind.__name__, (kind,), {"pin_results": vf.intercept(pin_results), "__module__": kind.__module__})
        pinned: vf.Task[Any, Any, Any] = made(task.data, config=task.config)
        return pinned

    def _pinned(self, request: Request) -> Request:
        seen: dict[str, int] = {}
        messages = list(request.messages)
        for place, message in enumerate(messages):
            # verifiers asks about a call before it is run, with an empty result that has the name of its tool.
            if isinstance(message, ToolMessage) and (message.content or message.name is None):
                number = seen[message.tool_call_id] = seen.get(message.tool_call_id, -1) + 1
                results = self._recorded.get(message.tool_call_id, [])
                if number < len(results) and message.content != results[number]:
                    self.replaced.add((message.tool_call_id, number))
                    result = results[number]
                    if isinstance(result, str) and len(result.encode()) > _CUT_BEYOND:
                        result = [TextContentPart(text=result)]
                    messages[place] = ToolMessage.model_validate({**message.model_dump(), "content": result})
        return request.model_copy(update={"messages": messages})
