"""A request that no provider would take is refused like by one, at no cost for the neighbours or the rollout."""

import asyncio
import gc
import gzip
import hashlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opencode_env.cli_agent.interception import MARK_HEADER, GatewayConfig, call_limits, request_steps
from opencode_env.cli_agent.rollout import rollout_of

from tests.rlm.role_server import SUB, Rollout, role_server

MILLION = 1_000_000
TOOL = b'{"type":"function","function":{"name":"a"}}'


def chat(messages: str) -> bytes:
    """A chat request with these messages."""
    return b'{"model": "m", "messages": ' + messages.encode() + b"}"


def said(text: str) -> str:
    """One message."""
    return json.dumps({"role": "user", "content": text})


MALFORMED = {
    "nothing": b"",
    "cut": b'{"model": "m", "messages": [',
    "a list": b"[]",
    "null": b"null",
    "a number": b"7",
    "no UTF-8": chat('["\xff"]').replace("ÿ".encode(), b"\xff"),
    "deep": chat("[" * 150 + "]" * 150),
    "deeper than a parser goes": b"[" * 100_000,
    "messages a number": chat("5"),
    "messages of numbers": chat("[1, 2]"),
    "messages null": chat("[null]"),
    "content a number": chat('[{"role": "user", "content": 7}]'),
    "a call without a name": chat('[{"role": "assistant", "tool_calls": [{}]}]'),
    "calls a number": chat('[{"role": "assistant", "tool_calls": 3}]'),
    "tools a text": b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": "x"}',
    "tools of texts": b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": ["x"]}',
    "no messages": chat("[]"),
    "nothing said": b'{"model": "m"}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
async def test_what_is_no_request_is_answered_400_and_is_no_failed_call(rollout: Rollout, body: bytes) -> None:
    for headers in ({}, SUB):
        answer = await rollout.post(body, headers)
        assert answer.status == 400, answer
        error = json.loads(answer.body)["error"]
        assert (error["type"], bool(error["message"])) == ("invalid_request_error", True)
    assert (rollout.model.requests, rollout.main.calls) == ([], [])
    assert rollout.session.error is None
    assert (await rollout.ask("hello")).status == 200


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    """A body of unknown length."""
    for start in range(0, len(body), 1 << 16):
        yield body[start : start + (1 << 16)]


async def test_a_body_over_the_bound_is_answered_413_however_it_comes() -> None:
    large, packed = chat(f"[{said('x' * 2 * MILLION)}]"), {"Content-Encoding": "gzip"}
    async with role_server(gateway=GatewayConfig(max_body=MILLION)) as server, server.rollout() as rollout:
        for body, headers in ((large, {}), (pieces(large), {}), (gzip.compress(large), packed), (large, SUB)):
            assert (await rollout.post(body, headers)).status == 413
        assert (await rollout.post(gzip.compress(chat(f"[{said('small')}]")), packed)).status == 200
        assert list(rollout.main.info["gateway"]["refused"].values()) == [4]
        assert len(rollout.main.calls) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (chat(f"[{','.join([said('')] * 6000)}]"), "messages"),
        (b'{"model": "m", "messages": [], "tools": [' + b",".join([b"{}"] * 6000) + b"]}", "tools"),
        (chat("[" + "[]," * 200_000 + "[]]"), "JSON values"),
        (chat("[" + '{"":""},' * 60_000 + "{}]"), "JSON values"),
    ],
)
async def test_too_many_parts_are_refused_with_the_bound(rollout: Rollout, body: bytes, reason: str) -> None:
    answer = await rollout.post(body)
    assert answer.status == 400
    assert f"more than {5000 if 'values' not in reason else 100_000} {reason}" in answer.text
    assert rollout.model.requests == []


async def test_a_long_honest_rollout_meets_no_bound_and_passes_unchanged(rollout: Rollout) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 100_000}}
    code = '{"a": [1, 2, {"b": "c\\\\"}],\n' * 1000
    messages: list[dict[str, object]] = [{"role": "user", "content": [{"type": "text", "text": "look"}, picture]}]
    for turn in range(200):
        function = {"name": "bash", "arguments": json.dumps({"command": code[:200]})}
        calls = [{"id": f"call_{turn}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": "", "reasoning_content": code[:100], "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": code[:10_000]})
    body = {"model": "m", "messages": messages, "temperature": 0.5, "stream": False}
    assert len(json.dumps(body)) > 2 * MILLION
    assert (await rollout.post(json.dumps(body).encode())).status == 200
    (request,) = rollout.model.requests
    assert request.body["messages"] == messages
    assert "gateway" not in rollout.main.info


async def test_half_a_character_of_a_cut_text_is_repaired(rollout: Rollout) -> None:
    assert (await rollout.post(chat('[{"role": "user", "content": "cut here: \\ud83d"}]'))).status == 200
    assert rollout.model.requests[0].body["messages"][0]["content"] == "cut here: \ufffd"
    assert rollout.session.error is None


@asynccontextmanager
async def watched() -> AsyncIterator[list[float]]:
    """How long the loop is held up each time, in CPU-seconds of this process; others' are not counted."""
    held: list[float] = []
    over = asyncio.Event()
    gc.collect()
    gc.freeze()  # as an environment does that serves: all that the tests of this process have left is not searched

    async def beat() -> None:
        last = False
        while not last:  # once more after the end: what held the loop up last counts too
            last = over.is_set()
            before = time.process_time()
            await asyncio.sleep(0.005)
            held.append(time.process_time() - before)

    beating = asyncio.create_task(beat())
    try:
        yield held
    finally:
        gc.unfreeze()
        over.set()
        await beating


ATTACKS = {
    "32,000 tiny messages": chat(f"[{','.join([said('')] * 32_000)}]"),
    "30 MB of lists": chat("[" + "[]," * 10 * MILLION + "[]]"),
    "500,000 messages": chat(f"[{','.join(['{}'] * 500_000)}]"),
    "20,000 tools": b'{"messages": [], "tools": [' + b",".join([TOOL] * 20_000) + b"]}",
    "31 MB of quotes": chat('["' + '\\"' * 15 * MILLION + ',,,"]'),
    "31 MB of backslashes": chat('["' + "\\\\" * 15 * MILLION + '", "' + "," * MILLION + '"]'),
}


@pytest.mark.parametrize("body", ATTACKS.values(), ids=ATTACKS)
async def test_no_request_holds_the_neighbours_up(body: bytes) -> None:
    async with role_server() as server, server.rollout() as attacker, server.rollout() as honest:
        await honest.ask("warm")
        async with watched() as held:
            attack = asyncio.create_task(attacker.post(body))
            answers = [await honest.ask(f"beside {number}") for number in range(5)]
            await attack
        assert {answer.status for answer in answers} == {200}
        assert max(held) < 0.5


async def test_a_rollout_that_takes_more_than_its_share_waits_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limits, "BURST_SECONDS", 0.1)
    heavy = b'{"model": "m", "messages": [%s], "tools": [%s]}' % (said("x").encode(), b",".join([TOOL] * 5000))
    charged: list[tuple[bool, call_limits.CpuBudget]] = []
    charge = call_limits.CpuBudget.charge

    def noted(budget: call_limits.CpuBudget, size: int, entries: int) -> None:
        charged.append((entries == 1 + 5000, budget))
        charge(budget, size, entries)

    monkeypatch.setattr(call_limits.CpuBudget, "charge", noted)
    async with role_server() as server, server.rollout() as attacker, server.rollout() as honest:
        began = time.monotonic()

        async def attack() -> set[int]:
            return {(await attacker.post(heavy)).status for _ in range(3)}

        attacking = asyncio.create_task(attack())
        assert (await honest.ask("beside")).status == 200
        assert not attacking.done()
        assert {(await honest.ask(f"beside {number}")).status for number in range(20)} == {200}
        assert await attacking == {200}
        assert [is_heavy for is_heavy, _ in charged].count(True) == 3
        assert len(set(charged)) == 2, "each has a budget of its own"
        # The share of two of them: the last is charged when it is served.
        assert 0.1 + 0.1 * (time.monotonic() - began) >= 2 * 5000 * call_limits.SECONDS_PER_ENTRY


async def test_more_open_requests_than_allowed_are_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_steps, "MAX_OPEN", 5)
    async with role_server() as server, server.rollout() as rollout:
        prompts = [json.dumps({"held": True, "number": number}) for number in range(5)]
        calls = [asyncio.create_task(rollout.ask(prompt)) for prompt in prompts]
        await server.model.wait_for_requests(5)
        assert (await rollout.ask("one more")).status == 429
        server.model.released.set()
        assert {answer.status for answer in await asyncio.gather(*calls)} == {200}
        assert (await rollout.ask("one more")).status == 200


async def test_a_body_that_stops_coming_is_answered_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_steps, "BODY_IDLE_SECONDS", 0.2)

    async def stalled() -> AsyncIterator[bytes]:
        yield b'{"model": '
        await asyncio.Event().wait()

    async with role_server() as server, server.rollout() as rollout:
        assert (await rollout.post(stalled())).status == 408
        assert rollout.main.calls == []


async def test_bodies_of_one_rollout_wait_for_memory_and_then_pass() -> None:
    text = "x" * 700_000
    async with role_server(gateway=GatewayConfig(max_body=MILLION)) as server, server.rollout() as rollout:
        answers = await asyncio.gather(*(rollout.ask(f"{number}{text}") for number in range(20)))
        assert {answer.status for answer in answers} == {200}


def long(number: int, size: int, *more: dict[str, object], **fields: object) -> str:
    """A call of a program's: that much text, and a short question behind it."""
    messages = [{"role": "user", "content": f"{number} {'x' * size} \U0001f600"}, {"role": "user", "content": "hi"}]
    return json.dumps({"model": "m", "messages": [*messages, *more], **fields})


@asynccontextmanager
async def with_program(gateway: GatewayConfig) -> AsyncIterator[Rollout]:
    """A rollout whose agent's own program is known by its mark: what bears none is of another."""
    async with role_server(gateway=gateway) as server, server.rollout() as rollout:
        mark = f"{rollout_of(rollout.main).program.new_run()}:own"
        assert (await rollout.ask("go", {MARK_HEADER: mark})).status == 200
        yield rollout


def held(rollout: Rollout) -> int:
    """Bytes of a rollout's main trace."""
    return len(rollout.main.model_dump_json())


def called(arguments: str, result: str) -> Sequence[dict[str, Any]]:
    """A call of a tool, its result, and a short question behind it."""
    function = {"name": "t", "arguments": arguments}
    call = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    return call, {"role": "tool", "tool_call_id": "c", "content": result}, {"role": "user", "content": "hi"}


def described(name: str, text: str) -> list[dict[str, object]]:
    return [{"type": "function", "function": {"name": name, "description": text}}]


def schema(text: str) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": {"const": text}}}


PROGRAMS: dict[str, Callable[[str], str]] = {
    "a text": lambda text: chat(f"[{said(text)}, {said('hi')}]").decode(),
    "many texts": lambda text: chat(
        f"[{','.join([said(f'{n} {text[: len(text) // 400]}') for n in range(400)])}]"
    ).decode(),
    "parts": lambda text: long(
        0, 0, {"role": "user", "content": [{"type": "text", "text": text}]}, *called("{}", "ok")
    ),
    "tools": lambda text: long(0, 0, tools=described(text[:8], text)),
    "a setting": lambda text: long(0, 0, response_format=schema(text)),
    "a call": lambda text: long(0, 0, *called(json.dumps([text]), text)),
}


@pytest.mark.parametrize("case", PROGRAMS)
async def test_what_programs_say_at_length_takes_no_more_of_a_trace_than_what_they_say_shortly(case: str) -> None:
    made, taken = PROGRAMS[case], []
    for size in (200_000, 2_000_000):
        async with with_program(GatewayConfig()) as rollout:
            before = held(rollout)
            for number in range(3):
                answer = await rollout.post(made(f"{number:08}{'x' * size}").encode())
                assert answer.status == 200, answer.body[:500]
            taken.append(held(rollout) - before)
    # Ten times the text, and about as much of it is kept.
    assert taken[1] < 1.5 * taken[0]
    assert taken[1] < 2_000_000


async def test_a_long_text_is_known_by_its_ends_and_digest_and_goes_upstream_whole() -> None:
    async with with_program(GatewayConfig()) as rollout:
        for more in ((), ({"role": "assistant", "content": "echo hi"}, {"role": "user", "content": "and now"})):
            assert (await rollout.post(long(7, 300_000, *more))).status == 200
        text = f"7 {'x' * 300_000} \U0001f600"
        assert [request.body["messages"][0]["content"] for request in rollout.model.requests[1:]] == [text, text]
        (kept,) = [node for node in rollout.main.nodes if "SHA-256" in str(node.message.content)]
        assert hashlib.sha256(text.encode()).hexdigest() in str(kept.message.content)
        assert (str(kept.message.content)[:3], str(kept.message.content)[-1]) == ("7 x", "\U0001f600")
        # The second call goes on from the first one's answer.
        assert rollout.main.num_branches == 2


@pytest.mark.parametrize("unmarked", [True, False])
async def test_full_traces_are_a_stop_and_sub_calls_count_and_are_refused(
    unmarked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "MAX_PROGRAM_TEXT", sys.maxsize)
    async with with_program(GatewayConfig(max_trace=3_000_000)) as rollout:
        headers = {} if unmarked else SUB
        statuses = [(await rollout.post(long(n, 400_000), headers)).status for n in range(3)]
        # A character that needs four bytes makes all of a text take as much memory: 1.6 MB each.
        assert statuses == [200, 200, 400]
        assert rollout.main.stop_condition == ("max_trace" if unmarked else None)
        assert rollout.side.session.limit_reached == (None if unmarked else "max_trace")
        answer = await rollout.ask("go on")
        assert (answer.status, "max_trace" in answer.text) == (400, True)
        assert rollout.main.stop_condition == "max_trace"
        assert rollout.session.error is None


async def test_what_the_agent_itself_says_is_kept_whole() -> None:
    async with role_server() as server, server.rollout() as rollout:
        assert (await rollout.post(long(1, 300_000))).status == 200
        assert any(len(str(node.message.content)) > 300_000 for node in rollout.main.nodes)
