"""The agent's time limit when nobody set one, and when somebody did."""

import math
from pathlib import Path

import pytest
import verifiers.v1 as vf
from opencode_env.agents.opencode.env import OpenCodeEnv, OpenCodeEnvConfig
from opencode_env.cli_agent.seats import limit_rollout
from opencode_env.scripted_model import Reply
from verifiers.v1.agent import TimeoutConfig, make_agent, resolve_rollout_timeouts

from tests.support.places import Confined
from tests.support.rollouts import play, seat
from tests.support.rows import write_rows

pytestmark = pytest.mark.usefixtures("light_opencode")


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


def test_a_scoring_shorter_than_its_commands_may_take_is_warned_about_at_load(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    row = {"id": "row", "question": "?", "verify": ["true", "false"], "verify_timeout": 31.0}
    taskset = {"id": "opencode-env", "dataset": str(write_rows(tmp_path / "rows.jsonl", [row, row | {"id": "b"}]))}
    for limit in (None, 62.0, 61.0):
        seat = {"harness": {"id": "opencode-env"}, "timeout": {"scoring": limit}}
        env = OpenCodeEnv(OpenCodeEnvConfig.model_validate({"taskset": taskset, "agent": seat}))
        assert [len(env.slots(task, 2)) for task in env.taskset] == [2, 2]
    (warning,) = [record.getMessage() for record in caplog.records if "timeout.scoring" in record.getMessage()]
    assert warning.startswith("task row: scoring has 61 s (timeout.scoring), and its commands may take 62 s")


async def test_no_limit_is_a_limit_that_a_rollout_can_have() -> None:
    played = await play(Confined(), Reply(text="Done."), settings={"timeout": TimeoutConfig(rollout=math.inf)})
    assert (played.trace.ok, played.trace.stop_condition) == (True, "agent_completed")
