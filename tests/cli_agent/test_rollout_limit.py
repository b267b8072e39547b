"""The agent's time limit when nobody set one, and when somebody did."""

import math

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.rollout_limit import limit_rollout
from opencode_env.scripted_model import Reply
from verifiers.v1.agent import TimeoutConfig, make_agent, resolve_rollout_timeouts

from tests.support.places import Confined
from tests.support.rollouts import play, seat


@pytest.mark.parametrize(
    ("of_seat", "task", "limit"),
    [(None, None, 3600), (None, 7200, 7200), (60, 7200, 60), (math.inf, None, math.inf), (math.inf, 7200, math.inf)],
)
def test_the_seats_limit_goes_before_the_tasks_and_that_before_the_default(
    of_seat: float | None, task: float | None, limit: float
) -> None:
    limits = {"timeout": TimeoutConfig(rollout=of_seat, scoring=5)}
    agent = make_agent(seat(Confined(), "http://127.0.0.1:9/v1", {}, limits))
    played = vf.Task(vf.TaskData(idx=0, prompt="x", timeout=vf.TaskTimeout(agent=task)))
    limit_rollout(agent, played)
    timeouts = resolve_rollout_timeouts(agent.timeout, played)
    assert (timeouts.agent, timeouts.scoring) == (limit, 5)


@pytest.mark.opencode
async def test_no_limit_is_a_limit_that_a_rollout_can_have() -> None:
    played = await play(Confined(), Reply(text="Done."), settings={"timeout": TimeoutConfig(rollout=math.inf)})
    assert (played.trace.ok, played.trace.stop_condition) == (True, "agent_completed")
