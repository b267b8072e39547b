"""The model of a seat of its own summarises full histories; what it says is context of what the agent samples."""

import json
from pathlib import Path
from typing import Any

import pytest
from opencode_env.agents.opencode.env import OpenCodeEnvConfig
from opencode_env.scripted_model import Policy, RecordedRequest, Reply, ScriptedModel
from opencode_runs.trainable.samples import recorded_parts
from pydantic import ValidationError
from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.episode import Episode

from tests.opencode.test_compaction import RESERVE, WINDOW, counting, is_summary
from tests.support.replies import faulty
from tests.support.rows import write_rows
from tests.turns.playing import config_of, episodes

ON = {"context_window": WINDOW, "window_reserve": RESERVE, "disable_compaction": False}
ROW = {"id": "one", "question": "Count the numbers.", "verify": "true"}
SAID = "They were counted, says another."


async def played(tmp_path: Path, summary: Policy) -> tuple[Episode[Any, Any, Any], list[RecordedRequest], int]:
    """A rollout whose summaries a second endpoint makes; the requests for them, and how many the first was asked."""
    async with ScriptedModel(counting(), context_window=WINDOW) as main, ScriptedModel(summary) as other:
        seat = {"model": "other", "client": {"base_url": other.base_url, "api_key_var": "NO_SUCH_KEY"}}
        rows = write_rows(tmp_path / "rows.jsonl", [ROW])
        config = config_of(rows, agent={"harness": ON}, summary={**seat, "sampling": {"temperature": 0.25}})
        (episode,) = await episodes(config, EvalClientConfig(base_url=main.base_url, api_key_var="NO_SUCH_KEY"))
    assert not any(is_summary(request.body) for request in main.requests)
    return episode, other.requests, len(main.requests)


@pytest.mark.opencode
@pytest.mark.usefixtures("sandboxes")
async def test_another_seats_model_summarises_and_the_agents_own_goes_on(tmp_path: Path) -> None:
    episode, asked, own = await played(tmp_path, lambda _: Reply(text=SAID))
    (trace,) = episode.traces
    assert (trace.ok, trace.reward, trace.last_reply) == (True, 1.0, "Done."), trace.errors
    assert asked
    assert {(request.body["model"], request.body["temperature"]) for request in asked} == {("other", 0.25)}
    assert all(is_summary(request.body) for request in asked)
    history = trace.info["history"]
    assert [(one["node"], one["used"], one["message"]["content"]) for one in history["summaries"]] == [
        (None, True, SAID)
    ] * len(asked)
    assert (history["forks"], trace.num_branches, len(history["sections"])) == (0, len(asked) + 1, len(asked) + 1)
    assert (trace.num_turns, len(trace.calls), trace.metrics["compactions"]) == (own, own, len(asked))
    assert (trace.metrics["summary_input_tokens"] or 0) > 0
    copies = [node for node in trace.nodes if node.message.content == SAID]
    assert copies
    assert not any(node.sampled for node in copies)
    sampled = [number for number, node in enumerate(trace.nodes) if node.sampled]
    assert sorted(number for part in recorded_parts(trace) for number in part.answers) == sampled
    json.dumps(trace.info)


@pytest.mark.opencode
@pytest.mark.usefixtures("sandboxes")
async def test_what_fails_at_that_seat_is_an_error_and_never_a_score(tmp_path: Path) -> None:
    episode, asked, own = await played(tmp_path, lambda _: faulty("status", status=404))
    (trace,) = episode.traces
    assert (trace.ok, trace.rewards) == (False, {})
    assert trace.last_error is not None
    assert (trace.last_error.type, trace.last_error.status_code) == ("ProviderError", 404)
    assert (len(asked), len(trace.calls), trace.calls[-1].model) == (1, own + 1, "other")


def test_a_seat_of_summaries_wants_compaction_and_has_no_budget() -> None:
    def seat(**fields: Any) -> OpenCodeEnvConfig:
        return OpenCodeEnvConfig.model_validate({"taskset": {"id": "opencode-env"}, **fields})

    with pytest.raises(ValidationError, match=r"no effect without --env.agent.harness.disable-compaction false"):
        seat(summary={"model": "other"})
    harness = {"harness": {"id": "opencode-env", "disable_compaction": False}}
    with pytest.raises(ValidationError, match=r"--env.summary.max-turns does not apply"):
        seat(agent=harness, summary={"model": "other", "max_turns": 3})
    assert seat(agent=harness, summary={"client": {"base_url": "http://x/v1"}}).summary.client is not None
