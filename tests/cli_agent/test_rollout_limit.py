"""The agent's time limit when nobody set one, and when somebody did."""

import math
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.rollout_limit import limit_rollout, warn_of_short_limit
from opencode_env.scripted_model import Reply
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_rubrics import VerifyCommandsConfig, VerifyCommandsRubric
from verifiers.v1.agent import TimeoutConfig, make_agent, resolve_rollout_timeouts

from tests.support.places import Confined
from tests.support.rollouts import play, seat

pytestmark = pytest.mark.usefixtures("sandboxes")


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


def test_a_scoring_shorter_than_its_commands_may_take_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    data = OpenCodeTaskData(idx=0, id="row", prompt="x", verify=["true", "false"], verify_timeout=31.0)
    longest = VerifyCommandsRubric(VerifyCommandsConfig()).longest(data)
    task: vf.Task[Any, Any, Any] = vf.Task(data)
    for limit in (None, 62.0, 61.0, 61.0):
        warn_of_short_limit(task, limit, longest)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("task row: scoring has 61 s (timeout.scoring), and its commands may take 62 s")


@pytest.mark.opencode
async def test_no_limit_is_a_limit_that_a_rollout_can_have() -> None:
    played = await play(Confined(), Reply(text="Done."), settings={"timeout": TimeoutConfig(rollout=math.inf)})
    assert (played.trace.ok, played.trace.stop_condition) == (True, "agent_completed")
