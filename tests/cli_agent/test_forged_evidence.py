"""No error of the policy's choosing: what an agent's programs, or a long answer, make an endpoint seem to do."""

import asyncio
import time

import aiohttp
import pytest
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.scripted_model import Reply

from tests.cli_agent.light_agent import Asking
from tests.cli_agent.test_whose_doing import DONE, FAILS, assert_own, ending, played
from tests.support.replies import bash, fault, faulty
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("sandboxes")

LIMITED = faulty("status", status=429)


async def fails(asking: Asking) -> int:
    """Every send of a call of its own, until it gives up."""
    for _ in range(3):
        await asking.ask()
    return 1


@pytest.mark.parametrize("silent", [False, True])
async def test_an_answer_that_the_policy_makes_long_is_no_silence_of_the_endpoint(silent: bool) -> None:
    patience = 2.0

    async def gives_up(asking: Asking) -> int:
        await asking.ask()
        own, begun = rollout_of(asking.trace).program, time.monotonic()
        sent = asyncio.ensure_future(asking.ask())
        await until(lambda: (own.longest_under_way if silent else time.monotonic() - begun) > 1.1 * patience)
        sent.cancel()
        return 1

    answer = Reply(text="word " * 4000, faults=fault("hang", after=20) if silent else fault("slow", seconds=0.02))
    trace = await played(gives_up, bash("ls"), answer, patient_for=patience)
    if silent:
        assert ending(trace) == "ProviderError"
    else:
        assert_own(trace)


async def hold(asking: Asking, number: int) -> list[asyncio.Task[int]]:
    """So many calls of programs, all of them at the endpoint."""
    begun = time.time()
    held = [asyncio.ensure_future(asking.program_asks()) for _ in range(number)]
    await until(lambda: rollout_of(asking.trace).program_load(begun, time.time()) == number)
    return held


@pytest.mark.parametrize("given_up", [False, True])
async def test_calls_of_programs_that_hold_the_endpoint_are_to_blame_though_none_was_answered(given_up: bool) -> None:
    async def crowds(asking: Asking) -> int:
        await asking.ask()
        held = await hold(asking, 12)
        code = await fails(asking)
        if given_up:
            for one in held:
                one.cancel()
            await asyncio.sleep(0.1)
        return code

    assert_own(await played(crowds, bash("ls"), LIMITED, program=faulty("hang")))


async def test_two_calls_of_programs_are_not_to_blame() -> None:
    async def beside(asking: Asking) -> int:
        await asking.ask()
        held = await hold(asking, 2)
        code = await fails(asking)
        for one in held:
            one.cancel()
        return code

    assert ending(await played(beside, bash("ls"), LIMITED, program=faulty("hang"))) == "ProviderError"


async def test_a_flood_of_questions_for_the_list_of_models_is_to_blame() -> None:
    async def lists(asking: Asking) -> int:
        await asking.ask()
        bearer = {"Authorization": f"Bearer {asking.secret}"}
        async with aiohttp.ClientSession(headers=bearer) as client:
            for _ in range(25):
                async with client.get(f"{asking.endpoint}/models") as answer:
                    await answer.read()
        return await fails(asking)

    assert_own(await played(lists, bash("ls"), LIMITED))


async def test_failures_of_several_calls_at_once_are_not_sends_of_one() -> None:
    async def branches(asking: Asking) -> int:
        await asking.ask()
        await asyncio.gather(*(asking.ask(**{"Idempotency-Key": f"{name}:build"}) for name in "abcdef"))
        return 137

    async def repeats(asking: Asking) -> int:
        await asking.ask()
        for _ in range(3):
            await asking.ask(**{"Idempotency-Key": "a:build"})
        return 1

    assert_own(await played(branches, bash("ls"), FAILS), "exited 137")
    assert ending(await played(repeats, bash("ls"), FAILS)) == "ProviderError"


async def test_what_is_refused_of_a_program_hides_no_failure_of_the_endpoint() -> None:
    async def refused(asking: Asking) -> int:
        await asking.ask()
        code = await fails(asking)
        assert await asking.post([], {}) == 400
        return code

    assert ending(await played(refused, bash("ls"), FAILS, program=DONE)) == "ProviderError"
