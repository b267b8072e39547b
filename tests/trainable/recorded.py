"""Rollouts without an agent, recorded by a real training client: what is asked in them, and their episodes."""

from pathlib import Path
from typing import Any

from verifiers.v1.clients import TrainClientConfig
from verifiers.v1.episode import EnvInfo, Episode

from tests.rlm.role_server import Rollout


def train_client(url: str, tokenizer: Path) -> TrainClientConfig:
    """The training client of an engine."""
    renderer = {"renderer": {"name": "default"}, "renderer_model_name": str(tokenizer)}
    return TrainClientConfig.model_validate({"base_url": url, "api_key_var": "NO_KEY", **renderer})


async def grow(rollout: Rollout, question: str, turns: int, headers: dict[str, str] | None = None) -> None:
    """A conversation that only grows."""
    messages = [{"role": "user", "content": question}]
    for turn in range(turns):
        answer = await rollout.ask(messages, headers)
        assert answer.status == 200, answer.body
        messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": f"{question} {turn}"}]


def episode_of(rollout: Rollout, reward: float | None) -> Episode[Any, Any, Any]:
    """The rollout's episode, as an environment leaves it; one without a reward has failed."""
    rollout.main.task.key = "half"
    for trace in (rollout.main, rollout.sub):
        trace.ok = True
        if reward is None:
            trace.record_error(ValueError("broken"))
        else:
            trace.record_reward("solved", reward)
    traces = [rollout.main, rollout.sub]
    return Episode(env=EnvInfo(id="probe"), task=rollout.main.task, traces=traces, ok=reward is not None)
