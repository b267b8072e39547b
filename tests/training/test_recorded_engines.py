"""What real engines answered, given again: chats and training clients read it as they did when the engine said it."""

import json
from pathlib import Path
from typing import Any

import pytest
from verifiers.v1.clients import ClientConfig, EvalClientConfig
from verifiers.v1.episode import Episode

from tests.support.families import Qwen3
from tests.support.recorded import engines, playing, recorded
from tests.support.rows import write_rows
from tests.training.trained import train_client
from tests.turns.playing import config_of, episodes

pytestmark = pytest.mark.usefixtures("light_opencode")

ENGINES = pytest.mark.parametrize("engine", engines())


async def play(tmp_path: Path, engine: str, scene: str, tokenizer: Path | None = None) -> Episode[Any, Any, Any]:
    """One rollout against what an engine said in a scene, by a chat client or by a training one with a tokenizer."""
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", "question": "Go.", "verify": ["true"]}])
    async with playing(engine, scene) as url:
        chat: ClientConfig = EvalClientConfig(base_url=url, api_key_var="NO_SUCH_KEY")
        client = chat if tokenizer is None else train_client(url, Qwen3(True, "all"), tokenizer)
        (episode,) = await episodes(config_of(rows), client, "smol")
    return episode


def test_there_are_answers_of_the_newest_engine() -> None:
    assert "vllm-0.32.0" in engines()


@ENGINES
async def test_calls_and_usage_of_a_stream_arrive(tmp_path: Path, engine: str) -> None:
    episode = await play(tmp_path, engine, "chat")
    assert episode.ok, (episode.errors, [trace.errors for trace in episode.traces])
    (trace,) = episode.traces
    answers = [message for message in trace.messages if message.role == "assistant"]
    assert [len(message.tool_calls or ()) for message in answers] == [1, 2, 0]
    assert trace.reward == 1.0
    usage = [json.loads(one.text.split("data: ")[-2])["usage"] for one in recorded(engine, "chat")]
    assert [call.usage and call.usage.completion_tokens for call in trace.calls] == [
        one["completion_tokens"] for one in usage
    ]


@ENGINES
async def test_a_full_window_is_an_error_at_first_and_a_scored_end_later(tmp_path: Path, engine: str) -> None:
    first = await play(tmp_path, engine, "full_first")
    (trace,) = first.traces
    assert trace.last_error is not None
    assert trace.last_error.message.startswith("before the model's first answer: ")
    (trace,) = (await play(tmp_path, engine, "full_later")).traces
    assert (trace.ok, trace.stop_condition, trace.reward) == (True, "max_total_tokens", 1.0), trace.errors


@ENGINES
async def test_a_training_client_takes_the_tokens_and_log_probabilities_that_were_sampled(
    tmp_path: Path, tokenizer: Path, engine: str
) -> None:
    (trace,) = (await play(tmp_path, engine, "generate", tokenizer)).traces
    assert trace.ok, trace.errors
    (choice,) = json.loads(recorded(engine, "generate")[0].text)["choices"]
    sampled = next(node for node in trace.nodes if node.sampled)
    trained = [token for token, own in zip(sampled.token_ids, sampled.mask, strict=True) if own]
    assert trained == choice["token_ids"]
    assert list(sampled.logprobs) == pytest.approx([one["logprob"] for one in choice["logprobs"]["content"]])
