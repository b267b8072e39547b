"""What a trainer gets of a rollout, and rollouts of real OpenCode in confined sandboxes through the training client."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.agents.opencode.config import BUILT_IN_TOOLS
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent.env import CliAgentEnv
from opencode_env.cli_agent.interception.callers import RLM_RECORD
from opencode_env.cli_agent.seats import local_seat
from opencode_env.taskset import OpenCodeTask
from opencode_env.taskset.config import OpenCodeTaskConfig
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_rlm.env import OpenCodeRLMEnv, OpenCodeRLMEnvConfig, OpenCodeRLMHarnessConfig
from opencode_runs.trainable.samples import TrainingSample, training_samples
from opencode_runs.turns.kept import TurnRow, kept_turns
from renderers import Qwen3RendererConfig
from verifiers.v1.clients import ModelContext, TrainClientConfig
from verifiers.v1.episode import Episode

from examples.learn.curriculum import Problem

MODEL = "learner"
LONGEST = 128
"""Tokens of one answer."""
TURNS = 4
SUMMARY_TURNS = 2
"""More where a conversation is compacted: the summary, and what fills the window."""
RESERVE = 1 << 12
"""Tokens of a window that are kept free: room for a summary and an answer."""
SYSTEM = "You answer with one command."
KEPT_BYTES = 1 << 30
"""Of turns that are kept; the oldest go first."""


@dataclass(frozen=True)
class Rollout:
    """What a trainer gets of one rollout."""

    group: str
    """Rollouts of one group are compared with each other."""
    reward: float = 0.0
    samples: Sequence[TrainingSample] = ()
    forks: int = 0
    derived: float = 0.0
    """The reward once more, from what the environment noted of each verify command."""
    error: str = ""
    """Why it must not be trained on."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds that it was in each stage."""
    line: str = ""
    """The episode as a line of `traces.jsonl`."""
    turns: Mapping[int, Problem] = field(default_factory=dict)
    """The problem as it was at each turn that was kept, by their numbers from 1."""


def problem_of(group: str) -> str:
    """The name of the problem that a group plays, from its beginning or from a kept turn."""
    return group.partition("@")[0]


def keep_rollouts(directory: Path, step: int, rollouts: Sequence[Rollout]) -> None:
    """Write the rollouts of a step where prime-rl writes them, for `opencode-report DIRECTORY`."""
    place = directory / "rollouts" / f"step_{step}" / "train" / "all"
    place.mkdir(parents=True, exist_ok=True)
    (place / "traces.jsonl").write_text("".join(rollout.line + "\n" for rollout in rollouts if rollout.line))


class Player:
    """Plays problems with real OpenCode.

    Args:
        env: the environment, serving.
        ctx: model and training client.
        at_once: how many rollouts run side by side.
        kept: where the environment keeps turns, if it does.
    """

    def __init__(self, env: CliAgentEnv[Any], ctx: ModelContext, at_once: int, kept: Path | None = None) -> None:
        self._env = env
        self._ctx = ctx
        self._kept = kept
        self._places = asyncio.Semaphore(at_once)

    async def play(self, problems: Sequence[tuple[str, Problem]]) -> list[Rollout]:
        """One rollout of each problem, with the name of its group."""
        async with asyncio.TaskGroup() as group:
            playing = [group.create_task(self._play(name, problem)) for name, problem in problems]
        return [one.result() for one in playing]

    async def _play(self, group: str, problem: Problem) -> Rollout:
        data = OpenCodeTaskData(
            idx=0,
            id=problem.name,
            prompt=problem.question,
            setup=problem.setup,
            verify=problem.verify,
            row_key=problem.name,
            kept_turn=problem.turn,
        )
        task: Any = OpenCodeTask(data, OpenCodeTaskConfig())
        (slot,) = self._env.slots(task)
        async with self._places:
            started = time.monotonic()
            episode = await self._env.run_slot(slot, self._ctx)
            rollout = rollout_of(group, episode, time.monotonic() - started)
        if self._kept is None or rollout.error:
            return rollout
        return replace(rollout, turns=turns_of(problem, self._kept / episode.traces[0].id))


def turns_of(problem: Problem, folder: Path) -> dict[int, Problem]:
    """The problem as it was at each turn that can be restored.

    Args:
        problem: that was played.
        folder: of the rollout's kept turns.
    """
    return {
        turn.turn: replace(problem, turn=TurnRow(kept_turn=str(turn.place), digest=turn.digest))
        for turn in kept_turns(folder)
        if turn.unrestorable is None
    }


def rollout_of(group: str, episode: Episode[Any, Any, Any], seconds: float | None = None) -> Rollout:
    """What a trainer gets of an episode.

    Args:
        group: the name of its group.
        episode: that was played.
        seconds: that it took; what no other stage took is the sandbox's. None: not known.
    """
    traces = [trace for trace in episode.traces if trace.agent.trainable]
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    failed = [error.message for error in errors]
    failed += [
        f"a sub call failed: {why}" for trace in traces for why in trace.info.get(RLM_RECORD, {}).get("failures", ())
    ]
    line = json.dumps(episode.to_record())
    if failed or not traces:
        return Rollout(group, error="; ".join(failed) or "no trace", line=line)
    main, verdicts, timing = traces[0], traces[0].info["verify"], traces[0].timing
    agent = {"model": timing.agent.model.duration, "opencode": timing.agent.harness.duration}
    stages = {**agent, "scoring": timing.scoring.duration}
    rest = {} if seconds is None else {"sandbox": seconds - sum(stages.values())}
    return Rollout(
        group,
        main.reward,
        [sample for trace in traces for sample in training_samples(trace)],
        forks=int((main.metrics["history_forks"] or 0) + (main.metrics.get("sub_llm_history_forks") or 0)),
        derived=sum(verdict["exit_code"] == 0 for verdict in verdicts) / len(verdicts),
        stages={**stages, **rest},
        line=line,
    )


def spare(kind: type[OpenCodeHarnessConfig]) -> dict[str, Any]:
    """OpenCode with the shell as its only tool, and a system prompt of one line."""
    options: dict[str, Any] = {
        "system_prompt": SYSTEM,
        "system_prompt_mode": "replace",
        "prompt_model": MODEL,
        "disabled_tools": [name for name in BUILT_IN_TOOLS if name != "bash"],
    }
    return {**options, "recursion_prompt": ""} if issubclass(kind, OpenCodeRLMHarnessConfig) else options


def compacting(tokens: int, summaries: str) -> dict[str, Any]:
    """OpenCode's options to compact a conversation.

    Args:
        tokens: of a call, prompt and answer, from which on it does.
        summaries: "frozen" or "trained", as the curriculum says.
    """
    trains = "all" if summaries == "trained" else "sections"
    window = {"context_window": tokens + RESERVE, "window_reserve": RESERVE}
    return {"disable_compaction": False, "compaction_trains": trains, **window}


def environment(
    kind: type[OpenCodeHarnessConfig], sub_calls: str, kept: Path | None, options: Mapping[str, Any]
) -> CliAgentEnv[Any]:
    """OpenCode as the only agent, whose turns may be kept, or with calls of its model from inside its work."""
    if sub_calls:
        seat = local_seat(OpenCodeRLMHarnessConfig(id="opencode-rlm", **spare(OpenCodeRLMHarnessConfig)))
        rlm = OpenCodeRLMEnvConfig.model_validate(
            {"taskset": {"id": "opencode-env"}, "include_sub_llm_in_trajectory": sub_calls == "trained"}
        )
        return OpenCodeRLMEnv(rlm.model_copy(update={"agent": seat.model_copy(update={"max_turns": TURNS})}))
    seat = local_seat(kind(id="opencode-env", **spare(kind), **options))
    turns = {"keep": kept, "max_disk": KEPT_BYTES}
    config = OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}, "turns": turns})
    most = TURNS + SUMMARY_TURNS * bool(options)
    return OpenCodeEnv(config.model_copy(update={"agent": seat.model_copy(update={"max_turns": most})}))


@asynccontextmanager
async def playing(
    url: str,
    tokenizer: Path,
    at_once: int,
    kind: type[OpenCodeHarnessConfig] = OpenCodeHarnessConfig,
    sub_calls: str = "",
    kept: Path | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Player]:
    """The environment, over an engine.

    Args:
        url: base URL of the engine.
        tokenizer: directory of its tokenizer.
        at_once: how many rollouts run side by side.
        kind: class of the harness's configuration, where there are no sub calls.
        sub_calls: "", "frozen" or "trained", as the curriculum says.
        kept: where turns are kept, an absolute path; None keeps none.
        options: further ones of OpenCode, where there are no sub calls.
    """
    env = environment(kind, sub_calls, kept, options)
    client = TrainClientConfig(
        base_url=url,
        api_key_var="NO_SUCH_KEY",
        renderer=Qwen3RendererConfig(enable_thinking=False),
        renderer_model_name=str(tokenizer),
    )
    sampling = vf.SamplingConfig(max_tokens=LONGEST, temperature=1.0)
    async with env.serving():
        yield Player(env, ModelContext(model=MODEL, client=client, sampling=sampling), at_once, kept)
