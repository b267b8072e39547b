"""Samples of what a training client recorded: real calls through the interception, written and read as runs are."""

from pathlib import Path
from typing import Any

import pytest
from opencode_runs.traces.record import EpisodeRecord
from opencode_runs.trainable.__main__ import main
from opencode_runs.trainable.inspection import inspect
from opencode_runs.trainable.samples import TrainingSample, training_samples
from verifiers.v1.episode import Episode
from verifiers.v1.utils.trace_store import write_episode

from tests.rlm.role_server import SUB, role_server
from tests.rlm.test_training import END, Engine, running, tokenizer
from tests.support.families import loaded_tokenizer
from tests.trainable.recorded import episode_of, grow, train_client

__all__ = ["tokenizer"]

SAMPLED = 3
"""Tokens of each answer of the engine."""
Recorded = tuple[Path, list[Episode[Any, Any, Any]], list[list[int]]]
"""A run of two rollouts of one task, its episodes, and every sequence that the engine saw and sampled."""


def longest_of(sequences: list[list[int]]) -> list[list[int]]:
    """Those that no other one goes on from: one per branch."""
    return [one for one in sequences if not any(other != one and other[: len(one)] == one for other in sequences)]


@pytest.fixture
async def played(tokenizer: Path, tmp_path: Path) -> Recorded:
    engine = Engine(loaded_tokenizer(tokenizer).convert_tokens_to_ids(END))
    episodes = []
    async with running(engine) as url:
        client = train_client(url, tokenizer)
        for reward in (0.0, 1.0):
            # A server of its own: its rollouts have models of their own, and those of a group have one.
            async with role_server(client=client) as server, server.rollout() as rollout:
                await grow(rollout, f"rollout {reward}: main question", turns=3)
                await grow(rollout, f"rollout {reward}: sub question", turns=2, headers=SUB)
                await grow(rollout, f"rollout {reward}: another one", turns=1, headers=SUB)
            episodes.append(episode_of(rollout, reward))
            write_episode(tmp_path, episodes[-1])
    return tmp_path, episodes, engine.sequences


async def test_a_branch_is_a_sample_of_exactly_what_the_engine_saw_and_every_answer_trains_once(
    played: Recorded,
) -> None:
    _, episodes, sequences = played
    assert len(sequences) == 12
    samples = [sample for episode in episodes for trace in episode.traces for sample in training_samples(trace)]
    assert sorted(sample.token_ids for sample in samples) == sorted(longest_of(sequences))
    assert [sample.trained for sample in samples] == [3 * SAMPLED, 2 * SAMPLED, SAMPLED] * 2
    for sample in samples:
        logprobs = [value for value, trains in zip(sample.logprobs, sample.mask, strict=True) if trains]
        assert logprobs == [-0.5] * sample.trained
        assert not any(value for value, trains in zip(sample.logprobs, sample.mask, strict=True) if not trains)


async def test_the_written_run_gives_the_same_samples(
    played: Recorded,
) -> None:
    run, episodes, _ = played
    read = [EpisodeRecord.model_validate_json(line) for line in (run / "traces.jsonl").read_bytes().splitlines()]

    def all_samples(of: Any) -> list[list[TrainingSample]]:
        return [training_samples(trace) for episode in of for trace in episode.traces]

    assert all_samples(read) == all_samples(episodes)


async def test_the_command_counts_what_the_engine_sampled_and_finds_nothing_wrong(
    played: Recorded,
) -> None:
    run, _, sequences = played
    assert main([str(run), "--check", "--max-tokens", str(max(map(len, sequences)))]) == 0
    report = inspect([run])
    assert (report.summary.branches, report.summary.samples, report.summary.forks) == (6, 6, 0)
    assert report.summary.trained_tokens == report.summary.logprobs == 12 * SAMPLED
    assert report.summary.prompt_tokens == sum(map(len, longest_of(sequences))) - 12 * SAMPLED
    assert [trace.advantage for trace in report.traces] == [-0.5, -0.5, 0.5, 0.5]
    assert [(trace.seat, trace.turns) for trace in report.traces] == [("agent", 3), ("sub", 3)] * 2
    assert report.findings == []
