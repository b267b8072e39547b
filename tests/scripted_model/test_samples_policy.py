"""The policy that works on the sample tasks: what is reproducible, and for whom."""

import asyncio
import json
from typing import Any

import pytest
from opencode_env.scripted_model import SamplesPolicy, ScriptedModel
from opencode_env.scripted_model.shipped_policies import coin, load_solutions

from tests.scripted_model.client import Body, send, user
from tests.support.sample_rows import sample_rows

SAMPLES = {sample.id: sample for sample in sample_rows()}
SOLUTIONS = load_solutions()
TOOLS = ("bash", "edit", "glob", "grep", "read", "skill", "task", "todowrite", "webfetch", "write")


async def rollout(model: ScriptedModel, task_id: str, session: str | None, *, repeat_first: bool = False) -> str:
    """Play one conversation as OpenCode does, without carrying out the calls; returns "solve" or "fail"."""
    messages: list[Body] = [user(SAMPLES[task_id].question)]
    taken: list[list[Any]] = []
    if repeat_first:
        await send(model, *messages, session=session, tools=TOOLS, stream=False)
    while not taken or taken[-1]:
        answer = await send(model, *messages, session=session, tools=TOOLS, stream=False)
        message = answer.json["choices"][0]["message"]
        calls = message.get("tool_calls", [])
        taken.append([json.loads(call["function"]["arguments"]) for call in calls])
        messages += [message, *({"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls)]
    solution = SOLUTIONS[task_id]
    for name, steps in (("solve", solution.solve), ("fail", solution.fail)):
        if taken == [[call.arguments for call in step.tool_calls] for step in steps]:
            return name
    raise AssertionError(f"neither path of {task_id} was taken: {taken}")


async def outcomes(policy: SamplesPolicy, task_id: str, count: int, *, prefix: str = "s") -> list[str]:
    async with ScriptedModel(policy) as model:
        return [await rollout(model, task_id, f"{prefix}{n}") for n in range(count)]


@pytest.mark.parametrize("task_id", SAMPLES)
async def test_rate_one_always_solves_and_rate_zero_never_does(task_id: str) -> None:
    assert await outcomes(SamplesPolicy(1), task_id, 2) == ["solve", "solve"]
    assert await outcomes(SamplesPolicy(0), task_id, 2) == ["fail", "fail"]


async def test_outcomes_are_the_same_in_every_run_though_session_ids_are_not() -> None:
    first = await outcomes(SamplesPolicy(0.5, seed=3), "pig-latin", 12, prefix="x")
    again = await outcomes(SamplesPolicy(0.5, seed=3), "pig-latin", 12, prefix="y")
    other = await outcomes(SamplesPolicy(0.5, seed=4), "pig-latin", 12)
    assert first == again
    assert set(first) == {"solve", "fail"}
    assert first != other
    policy = SamplesPolicy(0.5, seed=3)
    assert first == ["solve" if policy.solves("pig-latin", n) else "fail" for n in range(12)]


async def test_concurrent_and_mixed_rollouts_have_the_same_outcomes_in_some_order() -> None:
    tasks = ["pig-latin", "csv-report"]
    async with ScriptedModel(SamplesPolicy(0.5)) as model:
        jobs = [(task, rollout(model, task, f"{task}{n}")) for n in range(8) for task in tasks]
        results = await asyncio.gather(*(job for _, job in jobs))
    for task in tasks:
        mixed = [result for (name, _), result in zip(jobs, results, strict=True) if name == task]
        assert sorted(mixed) == sorted(await outcomes(SamplesPolicy(0.5), task, 8))


async def test_a_repeated_first_request_of_a_session_is_no_new_rollout() -> None:
    async with ScriptedModel(SamplesPolicy(0.5)) as model:
        retried = [await rollout(model, "pig-latin", f"s{n}", repeat_first=True) for n in range(8)]
    assert retried == await outcomes(SamplesPolicy(0.5), "pig-latin", 8)


async def test_without_a_session_header_rollouts_differ_and_each_stays_on_its_path() -> None:
    async with ScriptedModel(SamplesPolicy(0.5)) as model:
        bare = [await rollout(model, "pig-latin", None) for _ in range(8)]
    assert bare == await outcomes(SamplesPolicy(0.5), "pig-latin", 8)


async def test_a_restarted_server_keeps_a_rollout_on_its_path() -> None:
    policy = SamplesPolicy(0.5)
    number = next(n for n in range(50) if not policy.solves("count-errors", n))
    function = {"name": "glob", "arguments": "{}"}
    call = {"id": f"call_count-errors_{number}_0_0", "type": "function", "function": function}
    history = [user(SAMPLES["count-errors"].question), {"role": "assistant", "content": "I", "tool_calls": [call]}]
    async with ScriptedModel(policy) as model:
        answer = await send(model, *history, session="new", tools=TOOLS, stream=False)
    sent = answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == SOLUTIONS["count-errors"].fail[1].tool_calls[0].arguments


def test_a_rollout_solved_at_a_rate_is_solved_at_every_higher_one_and_shares_come_near_the_rate() -> None:
    for task_id in SAMPLES:
        solved = [{n for n in range(400) if coin(0, task_id, n) < rate} for rate in (0.2, 0.5, 0.8)]
        assert solved[0] < solved[1] < solved[2]
        assert [len(numbers) / 400 for numbers in solved] == pytest.approx([0.2, 0.5, 0.8], abs=0.08)


async def test_a_question_inside_other_text_and_in_message_parts_is_found() -> None:
    wrapped = f"Work carefully.\n\n{SAMPLES['pig-latin'].question}\n\nThank you."
    async with ScriptedModel(SamplesPolicy(1)) as model:
        parts = {"role": "user", "content": [{"type": "text", "text": wrapped}]}
        answer = await send(model, parts, tools=TOOLS, stream=False)
    assert answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "read"


async def test_an_unknown_prompt_gets_a_plain_text_that_says_what_answers() -> None:
    async with ScriptedModel(SamplesPolicy(1)) as model:
        assert "not a language model" in (await send(model, user("Write a poem."), tools=TOOLS)).joined("content")


async def test_calls_without_tools_or_without_the_right_ones_get_text_and_start_no_rollout() -> None:
    question = user(SAMPLES["pig-latin"].question)
    async with ScriptedModel(SamplesPolicy(1)) as model:
        title = await send(model, question)
        helpless = await send(model, question, tools=("bash",), session="a")
    assert title.joined("content") == "Sample task pig-latin"
    assert "cannot go on without: read" in helpless.joined("content")


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_zero_to_one_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        SamplesPolicy(rate)
