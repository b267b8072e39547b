"""Rollouts of the environment that keep turns, and rollouts that go on from them."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import ChatRequest, Policy, RecordedRequest, Reply, ScriptedModel
from opencode_runs.turns.kept import FILES, KeptTurn, TurnRow
from rollout_sandbox.toolbox.kept_files import content, entries_of
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import ClientConfig, EvalClientConfig, ModelContext
from verifiers.v1.episode import Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.serve.delta import DeltaStreamer, EpisodeAssembly, pack, unpack

from tests.support.rows import write_rows

OWN_STATE = "/tmp/opencode"


def config_of(dataset: Path | None, keep: Path | None = None, **fields: Any) -> OpenCodeEnvConfig:
    """The environment over a dataset (None: the samples), which keeps its turns in a folder."""
    taskset = {"id": "opencode-env", **({} if dataset is None else {"dataset": str(dataset)})}
    turns = {} if keep is None else {"turns": {"keep": str(keep)}}
    return OpenCodeEnvConfig.model_validate({"taskset": taskset, **turns, **fields})


async def episodes(
    config: OpenCodeEnvConfig,
    client: ClientConfig,
    model: str = "m",
    at_once: int = 2,
    kind: Callable[[Any], Any] = OpenCodeEnv,
) -> list[Episode[Any, Any, Any]]:
    """An episode of each task, by task."""
    env, places = kind(config), asyncio.Semaphore(at_once)
    context = ModelContext(model=model, client=client, sampling=SamplingConfig())

    async def play(slot: Any) -> Episode[Any, Any, Any]:
        sent = EpisodeAssembly()

        async def send(delta: dict[str, Any]) -> None:
            sent.apply(unpack(pack(delta)))

        async with places, DeltaStreamer(lambda: slot.traces, send) as streamer:
            played: Episode[Any, Any, Any] = await env.run_slot(slot, context, on_trace=streamer.watch)
        for trace in played.traces:  # a client of an environment server sees the same tokens train
            nodes = map(MessageNode.model_validate, sent.traces[trace.id]["nodes"])
            assert [list(node.mask) for node in nodes] == [list(node.mask) for node in trace.nodes]
        return played

    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task)]
        return list(await asyncio.gather(*map(play, slots)))


@dataclass(frozen=True)
class Played:
    """What a run left: its episodes, and the requests of each trace at the endpoint."""

    episodes: Sequence[Episode[Any, Any, Any]]
    requests: Mapping[str, Sequence[RecordedRequest]]

    @property
    def traces(self) -> list[AnyTrace]:
        """One for each episode."""
        assert not [error for episode in self.episodes for error in episode.errors], self.episodes[0].errors
        return [episode.traces[0] for episode in self.episodes]

    def bodies(self, trace: AnyTrace) -> list[dict[str, Any]]:
        """What a trace's agent asked."""
        return [request.body for request in self.requests[trace.id]]


def same_ids(policy: Policy) -> Policy:
    """The policy with ids of tool calls that name turn and position only, not the session."""

    def answer(request: ChatRequest) -> Reply:
        reply = policy(request)
        calls = [
            call.model_copy(update={"id": f"call_{request.turn}_{number}"})
            for number, call in enumerate(reply.tool_calls)
        ]
        return reply.model_copy(update={"tool_calls": tuple(calls)})

    return answer


async def play(config: OpenCodeEnvConfig, policy: Policy, window: int | None = None, **options: Any) -> Played:
    """Run an environment against a scripted model with a window of so many tokens."""
    async with ScriptedModel(same_ids(policy), context_window=window) as model:
        client = EvalClientConfig(base_url=model.base_url, api_key_var="NO_SUCH_KEY")
        played = await episodes(config, client, **options)
    by_trace: dict[str, list[RecordedRequest]] = {}
    for request in model.requests:
        by_trace.setdefault(request.headers["x-session-id"], []).append(request)
    return Played(played, by_trace)


def write_turns(path: Path, turns: Sequence[KeptTurn]) -> Path:
    """The dataset of these kept turns."""
    return write_rows(path, [TurnRow(kept_turn=str(turn.place), digest=turn.digest).model_dump() for turn in turns])


def text(body: Mapping[str, Any]) -> str:
    """A request's bytes."""
    return json.dumps(body)


def files(turn: KeptTurn) -> dict[str, Any]:
    """The agent's own files of a kept turn, without OpenCode's: kind, mode and content or target by path."""
    place = turn.place / FILES
    return {
        path: (kind, mode, b"".join(content(place, more[0])) if kind == "f" else what)
        for path, kind, mode, _, what, _, *more in entries_of(place)
        if not path.startswith(OWN_STATE)
    }
