"""When the agent's time is over, or its run is cancelled, nothing of it lives on; only then is it scored.

The light program runs in every sandbox, OpenCode in the confined one.
"""

import asyncio
import time
from functools import partial

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel
from rollout_sandbox.conformance.subject import LIST_PROCESSES, runs
from verifiers.v1.agent import TimeoutConfig, make_agent

from tests.support.machine import assert_no_longer
from tests.support.places import Place
from tests.support.replies import bash
from tests.support.rollouts import Played, play, policy_of, seat
from tests.support.tasks import SeenTask, seen_data
from tests.support.waiting import until, within_a_limit

DAEMONS = (
    "setsid nohup sleep 1111 >/dev/null 2>&1 & "
    "setsid env -i sh -c 'sleep 2222 & sleep 3333' >/dev/null 2>&1 & "
    "(trap '' TERM INT HUP; sleep 4444) >/dev/null 2>&1 & "
    "(while sleep 0.2; do echo late >> /app/late; done) >/dev/null 2>&1 & "
)
"""A shell command that leaves behind every kind of process that outlives its parent."""


def survivors(processes: str) -> list[str]:
    """Command lines of what a script of this file or OpenCode started."""
    own = ("sleep infinity", "for p in /proc")
    lines = [line for line in processes.splitlines() if not any(words in line for words in own)]
    return [line for line in lines if "sleep " in line or "opencode" in line]


async def test_an_agent_that_runs_out_of_time_is_scored_with_its_whole_process_tree_dead(light_place: Place) -> None:
    look = f"{LIST_PROCESSES}; wc -c < /app/late; sleep 0.5; wc -c < /app/late"
    lasting = bash(": >> /app/late; " + DAEMONS + "echo made > /app/made; sleep 600", timeout=700_000)

    async def limited(seconds: float) -> tuple[Played, float, float]:
        started = time.monotonic()
        timeout = {"timeout": TimeoutConfig(rollout=seconds)}
        played = await play(light_place, lasting, settings=timeout, after=look)
        return played, time.monotonic() - started, seconds

    def came_to_its_command(outcome: tuple[Played, float, float]) -> bool:
        return outcome[0].seen.splitlines()[-2].isdigit()

    played, taken, limit = await within_a_limit(limited, came_to_its_command)
    trace = played.trace
    *processes, before, after = played.seen.splitlines()
    assert trace.ok, trace.errors
    assert (trace.stop_condition, trace.is_timeout, trace.reward) == ("agent_timeout", True, 1.0)
    assert (trace.metrics["agent_timeout"], trace.metrics["agent_error"]) == (1.0, 0.0)
    assert survivors("\n".join(processes)) == []
    assert (before.isdigit(), after) == (True, before)
    assert played.record["exit_code"] is None
    assert '"type":"step_start"' in played.record["log_tail"]
    assert_no_longer(taken, limit + 25)


@pytest.mark.usefixtures("light")
async def test_a_model_that_never_answers_runs_into_the_time_limit_too(confined: Place) -> None:
    async def limited(seconds: float) -> Played:
        timeout = {"timeout": TimeoutConfig(rollout=seconds)}
        return await play(confined, Reply(text="Late."), settings=timeout, server={"delay": 600.0})

    played = await within_a_limit(limited, lambda played: played.requests)
    assert (played.trace.ok, played.trace.stop_condition) == (True, "agent_timeout")


async def assert_cancelled(place: Place) -> None:
    """A run is cancelled in mid-command, and leaves no process."""
    async with (
        ScriptedModel(policy_of([bash(DAEMONS + "sleep 600", timeout=700_000)])) as model,
        place.interception() as serves,
    ):
        agent = make_agent(seat(place, model.base_url, {}, {}), interception=serves)
        async with place.box(agent) as box:
            running = asyncio.ensure_future(agent.run(SeenTask(seen_data()), runtime=box))
            await model.wait_for_requests(1)
            await until(partial(runs, box, "sleep 600"))
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            result = await box.run(["sh", "-c", LIST_PROCESSES], {})
            assert survivors(result.stdout) == []


async def test_a_cancelled_run_leaves_no_process_in_a_sandbox_that_lives_on(light_place: Place) -> None:
    await assert_cancelled(light_place)


@pytest.mark.opencode
async def test_a_cancelled_run_of_opencode_leaves_none_either(confined: Place) -> None:
    await assert_cancelled(confined)
