"""The evaluation client in front of a real engine: chat completions, their calls, usage and log-probabilities."""

import asyncio
from collections.abc import Callable

import pytest

from tests.engines.playing import ANSWER, FIRST, PICTURE, Engine, Run, play, record, row
from tests.engines.recorder import CHAT, FULL, TEXT, bash, lines, tool_call
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("sandboxes"), pytest.mark.opencode, pytest.mark.slow]

SAID = {
    "row plain:": [bash(), f"{bash()}\n{bash()}", TEXT],
    "row users:": [bash(), TEXT, bash(), TEXT],
    "row cut:": [bash(), bash("echo [a-z]{600}"), bash(), TEXT],
    "row picture:": [tool_call("read", filePath='"/app/pixel[.]png"'), TEXT],
    "row full:": [bash(), FULL, bash(), TEXT],
}
ROWS = [
    *(row(name) for name in ("plain", "cut", "full")),
    row("picture", setup=PICTURE),
    row("users", user_simulation={"script": ["And now?"]}),
    row("first", question=FIRST),
]


@pytest.fixture(scope="module")
def run(engine: Engine, shared_home: UserHome) -> Run:
    options = ["-c", "4", "--sampling.logprobs"]
    run = asyncio.run(play(engine, shared_home, "chat", ROWS, lines(SAID), *options, tools=("bash", "read")))
    said, models = run.recorder.of, [one for one in run.recorder.exchanges if one.path == "/v1/models"]
    scenes = {"chat": said("row plain:"), "full_first": said("row first:"), "full_later": said("row full:")}
    record(engine, models=models[:1], **scenes)
    return run


@pytest.mark.engine("chat: calls of tools and text, streamed, with usage")
def test_calls_and_texts_arrive(run: Run) -> None:
    (trace,) = run.traces("plain")
    assert (trace.ok, trace.reward, trace.stop_condition) == (True, 1.0, "agent_completed"), trace.errors
    assert [len(node.message.tool_calls or ()) for node in trace.nodes if node.sampled] == [1, 2, 0]
    streams = run.recorder.of("row plain:")
    assert {one.content_type for one in streams} == {"text/event-stream"}
    told = [one.events[-1]["usage"] for one in streams]
    assert [call.usage.completion_tokens for call in trace.calls] == [one["completion_tokens"] for one in told]


@pytest.mark.engine("chat: log-probabilities")
def test_log_probabilities_are_kept(run: Run, record_property: Callable[[str, object], None]) -> None:
    (trace,) = run.traces("plain")
    kept = trace.info["logprobs"]
    assert len(kept) == 3
    whole = [len(entry["logprobs"]) == entry["completion_tokens"] for entry in kept]
    record_property("figures", f"{sum(whole)} of {len(whole)} streamed answers have all of them")
    assert whole[-1]
    assert all(value <= 0 for entry in kept for value in entry["logprobs"])


@pytest.mark.engine("chat: a user who goes on")
def test_a_user_goes_on(run: Run) -> None:
    (trace,) = run.traces("users")
    assert (trace.ok, trace.stop_condition, trace.num_branches) == (True, "user_stop", 1), trace.errors
    assert trace.info["agent"]["segments"] == 2


@pytest.mark.engine("chat: a call that is cut off")
def test_a_call_that_is_cut_off_is_scored(run: Run, record_property: Callable[[str, object], None]) -> None:
    (trace,) = run.traces("cut")
    assert (trace.ok, trace.reward) == (True, 1.0), trace.errors
    ends = [call.finish_reason for call in trace.calls if call.usage and call.usage.completion_tokens == ANSWER]
    assert set(ends) in ({"length"}, {"tool_calls"}), "no call was cut off, or the engine says of it what it never said"
    record_property("figures", f"the engine says `{ends[0]}` of it")


@pytest.mark.engine("chat: a picture that a tool reads, a model without vision")
def test_a_model_without_vision_is_told_that_there_is_a_picture(run: Run) -> None:
    (trace,) = run.traces("picture")
    assert (trace.ok, trace.reward) == (True, 1.0), trace.errors
    assert not any("image_url" in str(one.body) for one in run.recorder.exchanges if one.path == CHAT)


@pytest.mark.engine("chat: a window that is full before the first answer")
def test_a_window_that_is_full_at_first_is_an_error(run: Run) -> None:
    assert run.finished.error("first").startswith("ProviderError: before the model's first answer: ")
    assert len(run.recorder.of("row first:")) == 1


@pytest.mark.engine("chat: a window that is full after the first answer")
def test_a_window_that_is_full_later_ends_the_rollout_which_is_scored(run: Run) -> None:
    (trace,) = run.traces("full")
    assert (trace.ok, trace.stop_condition, trace.reward) == (True, "max_total_tokens", 1.0), trace.errors


@pytest.mark.engine("chat: an answer's limit beyond the window, `context-window auto`")
async def test_an_answers_limit_is_fitted_into_the_window(engine: Engine, home: UserHome) -> None:
    said = {"row wide:": [bash(), TEXT]}
    auto = ["--env.agent.harness.context-window", "auto"]
    run = await play(engine, home, "wide", [row("wide")], lines(said), *auto, limit=None)
    (trace,) = run.traces("wide")
    assert (trace.ok, trace.num_turns, trace.reward) == (True, 2, 1.0), trace.errors
