"""A run of the agent's program is known by its own mark only, and goes on with what its conversations began with."""

import asyncio
from itertools import count
from typing import Any

import pytest
from aiohttp import web
from opencode_env.agents.opencode import OpenCodeHarnessConfig
from opencode_env.cli_agent.interception import MARK_HEADER, own_calls
from opencode_env.cli_agent.rollout import rollout_of

from tests.gateway.test_masking import completion, provided
from tests.rlm.role_server import Rollout

TOOL = {"type": "function", "function": {"name": "bash", "description": "runs", "parameters": {"type": "object"}}}


async def told(rollout: Rollout, mark: str) -> bool:
    """Whether a call with that mark counts as the own program's."""
    before = len(own_calls(rollout.main))
    assert (await rollout.ask("hello", {MARK_HEADER: mark})).status == 200
    return len(own_calls(rollout.main)) > before


async def test_the_first_mark_of_a_code_is_the_runs_and_no_other(rollout: Rollout) -> None:
    program = rollout_of(rollout.main).program
    code = program.new_run()
    assert await told(rollout, f"{code}:own")
    for other in (f"{code}:another", code, "", ":", "é"):
        assert not await told(rollout, other), other
    assert await told(rollout, f"{code}:own")
    program.forget()


async def test_an_older_runs_mark_and_code_count_no_more(rollout: Rollout) -> None:
    program = rollout_of(rollout.main).program
    old = program.new_run()
    assert await told(rollout, f"{old}:own")
    program.revoke()
    for between in (f"{old}:own", f"{old}:new", ":", ":own"):
        assert not await told(rollout, between), between
    code = program.new_run()
    for of_old in (f"{old}:own", f"{old}:new"):
        assert not await told(rollout, of_old), of_old
    assert await told(rollout, f"{code}:own")
    program.forget()


async def test_a_call_that_outlives_its_run_breaks_nothing_of_the_next() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        if "late" in (await request.text()):
            asked.set()
            await answer.wait()
            return web.json_response({"error": {"message": "no"}}, status=400)
        return web.json_response(completion("yes"))

    async with provided(waits) as rollout:
        program = rollout_of(rollout.main).program
        old = program.new_run()
        assert await told(rollout, f"{old}:own")
        late = asyncio.ensure_future(rollout.ask("late", {MARK_HEADER: f"{old}:own"}))
        await asked.wait()
        code = program.new_run()
        answer.set()
        assert (await late).status == 400
        assert rollout.session.error is None
        assert [call.error for call in own_calls(rollout.main)] == [None]
        assert await told(rollout, f"{code}:own")
        program.forget()


async def say(
    rollout: Rollout, mark: str, system: str, tools: list[Any] | None, agent: str = "build", conversation: str = "ses_1"
) -> None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "hello"}]
    headers = {"x-session-id": conversation, "Idempotency-Key": f"key-{next(_keys)}:{agent}"}
    body = {"model": "m", "messages": messages, **({} if tools is None else {"tools": tools})}
    marks = {MARK_HEADER: mark} if mark else {}
    assert (await rollout.post(web.json_response(body).body, headers | marks)).status == 200


_keys = count()


def sent(rollout: Rollout) -> list[tuple[str, list[str]]]:
    """System prompt and names of the tools of every request at the endpoint."""
    return [
        (body["messages"][0]["content"], [tool["function"]["name"] for tool in body.get("tools") or []])
        for body in (request.body for request in rollout.model.requests)
    ]


@pytest.mark.parametrize("rollout", [OpenCodeHarnessConfig(id="opencode-env")], indirect=True)
@pytest.mark.parametrize("runs", [1, 2])
async def test_a_conversation_keeps_its_system_prompt_and_tools_whatever_its_agent_is_called(
    rollout: Rollout, runs: int
) -> None:
    other = {**TOOL, "function": {**TOOL["function"], "name": "evil"}}  # type: ignore[dict-item]
    mark = f"{rollout_of(rollout.main).program.new_run()}:own"
    await say(rollout, mark, "You code.", [TOOL])
    assert rollout_of(rollout.main).first_conversation == "ses_1"
    if runs == 2:
        mark = f"{rollout_of(rollout.main).program.new_run()}:own"
    await say(rollout, mark, "You are evil.", [other])
    await say(rollout, mark, "You code.", None)
    await say(rollout, mark, "You plan.", [TOOL, other], "plan")
    await say(rollout, mark, "You sum up.", None, "compaction")  # which is not due
    assert sent(rollout) == [("You code.", ["bash"])] * 5
    await say(rollout, mark, "You name it.", None, "title")
    await say(rollout, mark, "You help.", [other], "general", "ses_2")
    await say(rollout, "", "A program's.", [other], "build", "ses_1")
    assert sent(rollout)[5:] == [("You name it.", []), ("You help.", ["evil"]), ("A program's.", ["evil"])]
    rollout_of(rollout.main).program.forget()


@pytest.mark.parametrize("rollout", [OpenCodeHarnessConfig(id="opencode-env")], indirect=True)
@pytest.mark.parametrize("different", [False, True])
async def test_however_many_conversations_there_are_each_keeps_its_beginning(rollout: Rollout, different: bool) -> None:
    """Of more beginnings than are kept, the later ones are the rollout's first."""
    mark = f"{rollout_of(rollout.main).program.new_run()}:own"
    for number in range(101):
        await say(rollout, mark, f"You are {number}." if different else "You code.", [TOOL], "build", f"ses_{number}")
    await say(rollout, mark, "You are evil.", None, "build", "ses_100")
    first, *_, late, later = sent(rollout)
    assert first == late == later
    assert sent(rollout)[99] == (("You are 99." if different else "You code."), ["bash"])
    rollout_of(rollout.main).program.forget()
