"""Whole rollouts under a training client, and what the command says of them."""

from pathlib import Path
from typing import Any

import pytest
from opencode_rlm.env import OpenCodeRLMEnv, OpenCodeRLMEnvConfig
from opencode_runs.trainable.__main__ import main
from opencode_runs.trainable.findings import Flaw
from opencode_runs.trainable.inspection import inspect
from opencode_runs.trainable.samples import training_samples
from verifiers.v1.clients import ModelContext
from verifiers.v1.episode import Episode
from verifiers.v1.utils.trace_store import write_episode

from tests.support.families import Family, Qwen3
from tests.support.light_opencode import light_opencode_in_place
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.token_engine import Says, TokenEngine
from tests.training.trained import Lines, train, train_client

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]

KEEPS = Qwen3(True, "all")
"""A model whose conversations stay one sample."""


def bash(family: Family, command: str) -> Says:
    """A turn that runs a command."""
    call = family.call("bash", {"command": command, "description": "d", "timeout": 5000.0})
    return Says(family.answer("", call, reasoning="Hm."))


async def rollout(engine: TokenEngine, tokenizer: Path, directory: Path) -> Episode[Any, Any, Any]:
    """One episode of opencode-rlm, both of whose seats train."""
    rows = write_rows(directory / "rows.jsonl", [{"id": "one", "question": "What is it?", "answer": "done"}])
    taskset = {"id": "opencode-rlm", "dataset": str(rows)}
    options = {"sub_model": SUB_MODEL, "include_sub_llm_in_trajectory": True}
    env = OpenCodeRLMEnv(OpenCodeRLMEnvConfig.model_validate({"taskset": taskset, **options}))
    async with engine.serving() as url, env.serving():
        client = train_client(url, KEEPS, tokenizer)
        (slot,) = [slot for task in env.taskset for slot in env.slots(task)]
        return await env.run_slot(slot, ModelContext(model=MAIN_MODEL, client=client))


async def test_an_episode_with_sub_agents_trains_every_token_that_was_sampled_once(
    tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = {"description": "a job", "prompt": "job one", "subagent_type": "general"}
    steps = [Says(KEEPS.answer("", KEEPS.call("task", task), reasoning="Hm.")), bash(KEEPS, "echo main")]
    jobs = {"job one": [bash(KEEPS, "echo sub"), Says(KEEPS.answer("One done.", reasoning="Hm."))]}
    engine = TokenEngine(tokenizer, KEEPS, Lines(KEEPS, steps, jobs))
    episode = await rollout(engine, tokenizer, tmp_path)
    assert episode.ok, episode.errors
    write_episode(tmp_path, episode)
    assert main([str(tmp_path), "--check"]) == 0, capsys.readouterr()
    traces = inspect([tmp_path]).traces
    assert [(trace.seat, trace.turns) for trace in traces] == [("agent", 3), ("sub", 2)]
    assert [(trace.branches, trace.forks) for trace in traces] == [(1, 0)] * 2
    for trace, model in zip(traces, (MAIN_MODEL, SUB_MODEL), strict=True):
        calls = engine.of(model)
        assert trace.trained_tokens == trace.logprobs == sum(len(call.completion) for call in calls)
        assert trace.longest == len(calls[-1].sequence) == (trace.prompt_tokens or 0) + (trace.trained_tokens or 0)
        assert trace.unused_because is None
        assert trace.advantage == 0.0


async def test_a_history_that_is_rendered_again_is_a_fork_that_is_found_and_still_trains_every_token_once(
    tokenizer: Path, tmp_path: Path
) -> None:
    family = Qwen3(True)
    segments = [[bash(family, "echo one"), Says(family.answer("First.", reasoning="Hm."))], [bash(family, "echo two")]]
    with light_opencode_in_place():
        played = await train(tokenizer, family, *segments)
    samples = training_samples(played.main)
    assert len(samples) == played.main.num_branches > 1
    sampled = sum(len(call.completion) for call in played.engine.of(MAIN_MODEL))
    assert sum(sample.trained for sample in samples) == sampled
    played.main.record_reward("solved", 1.0)
    played.main.task.key = "resumed"
    write_episode(tmp_path, Episode(task=played.main.task, traces=[played.main], ok=True))
    [trace] = inspect([tmp_path]).traces
    assert trace.forks == len(samples) - 1
    assert trace.findings.keys() == {Flaw.FORKS}
    assert "the same text was given other tokens" in trace.findings[Flaw.FORKS]
