"""OpenCode knows the window, and summarises before an endpoint has to refuse a request."""

from typing import Any

import pytest
from opencode_env.cli_agent.classification import overflowed
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import Policy, Reply
from pydantic import ValidationError
from verifiers.v1.interception import InterceptionServerConfig

from tests.opencode.test_opencode_config import built
from tests.support.places import Place
from tests.support.replies import bash
from tests.support.rollouts import Played, conversation, play

WINDOW = 20_000
RESERVE = 6_000
SUMMARY = "Here is the conversation so far"


def is_summary(body: dict[str, Any]) -> bool:
    """Whether a request asks for a summary."""
    return any(SUMMARY in str(message["content"]) for message in body["messages"])


def counting() -> Policy:
    """Eight calls whose results together are longer than the window."""
    calls = [bash(f"seq {n}00000 {n}01400").model_copy(update={"text": f"This is {n}."}) for n in range(1, 9)]
    left = [*calls, Reply(text="Done.")]
    return lambda request: Reply(text="The numbers were counted.") if SUMMARY in request.prompt else left.pop(0)


async def played(confined: Place, **harness: Any) -> Played:
    """A rollout of `counting`."""
    async with role_interception(InterceptionServerConfig()) as server:
        return await play(confined, counting(), harness=harness, server={"context_window": WINDOW}, interception=server)


@pytest.mark.opencode
@pytest.mark.parametrize("window", [WINDOW, "auto"])
async def test_opencode_summarises_before_the_window_is_full(confined: Place, window: int | str) -> None:
    told = {"context_window": window, "window_reserve": RESERVE, "disable_compaction": False}
    run = await played(confined, **told)
    summaries = [number for number, request in enumerate(run.requests) if is_summary(request.body)]
    assert summaries
    assert run.trace.ok, run.trace.errors
    assert run.record["outcome"] == "completed"
    assert [call.error for call in run.trace.calls] == [None] * len(run.requests)
    assert (run.trace.metrics["compactions"], run.trace.metrics["history_forks"]) == (len(summaries), 0)
    assert run.trace.num_branches == 2 * len(summaries) + 1
    assert run.requests[0].body["max_tokens"] > RESERVE  # an answer is held to what fits, and not to the reserve


@pytest.mark.opencode
async def test_a_refusal_that_opencode_recovers_from_is_no_error(confined: Place) -> None:
    run = await played(confined, context_window=10 * WINDOW, disable_compaction=False)  # the endpoint's is smaller
    refused = [call for call in run.trace.calls if call.error is not None]
    assert refused
    assert overflowed(refused)
    assert run.trace.ok, run.trace.errors
    assert (run.record["outcome"], run.trace.metrics["model_call_errors"]) == ("completed", 0)
    assert (run.trace.metrics["agent_error"], run.trace.metrics["history_forks"]) == (0, 0)
    assert {one["planned"] for one in run.trace.info["history"]["summaries"]} == {False}


@pytest.mark.opencode
async def test_a_limit_right_behind_a_summary_leaves_the_answer_before_it(confined: Place) -> None:
    """To the agent's user, and to what scores it."""
    harness = {"context_window": WINDOW, "window_reserve": RESERVE, "disable_compaction": False}
    whole = await played(confined, **harness)
    turns = 1 + next(number for number, request in enumerate(whole.requests) if is_summary(request.body))
    async with (
        role_interception(InterceptionServerConfig()) as server,
        conversation(confined, counting(), harness=harness, settings={"max_turns": turns}, interception=server) as (
            talk,
            model,
        ),
    ):
        heard = (await talk.turn("Count the numbers.")).last_reply
    trace = talk.trace
    assert (trace.ok, trace.stop_condition, len(model.requests)) == (True, "max_turns", turns), trace.errors
    assert trace.nodes[trace.info["history"]["summaries"][0]["node"]] is trace.nodes[-1]
    assert (heard, trace.last_reply) == (f"This is {turns - 1}.",) * 2


@pytest.mark.opencode
async def test_without_compaction_a_full_window_ends_the_rollout_also_where_it_is_known(confined: Place) -> None:
    run = await played(confined, context_window=WINDOW)
    assert not any(is_summary(request.body) for request in run.requests)
    assert (run.trace.ok, run.record["outcome"]) == (True, "context_window")


def test_the_window_is_told_only_where_opencode_may_compact() -> None:
    def limit(window: int | None, **config: Any) -> tuple[Any, Any]:
        made = built(window=window, **config)
        return made["provider"]["intercepted"]["models"]["m"].get("limit"), made["compaction"].get("reserved")

    on = {"disable_compaction": False}
    assert limit(WINDOW) == limit(None, **on) == (None, None)
    known = {"context": WINDOW, "input": WINDOW, "output": 0}
    assert limit(WINDOW, **on) == (known, 5_000)
    assert limit(WINDOW, **on, window_reserve=RESERVE) == (known, RESERVE)
    assert limit(1_000_000, **on)[1] == 20_000
    assert limit(4_000, **on, window_reserve=RESERVE)[1] == 3_999  # of an endpoint's list, known after the options


def test_a_reserve_that_leaves_nothing_of_the_window_is_refused() -> None:
    with pytest.raises(ValidationError, match="window_reserve must be smaller than context_window, 6000 tokens"):
        built(context_window=RESERVE, window_reserve=RESERVE)
