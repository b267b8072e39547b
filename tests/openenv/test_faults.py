"""What goes wrong around a rollout is in its result, and time limits hold."""

import asyncio
from typing import Any

import pytest
from opencode_openenv import RolloutResult
from opencode_openenv.rollout_engine import RolloutEngine

from tests.openenv.playing import play
from tests.support.machine import patience
from tests.support.replies import faulty
from tests.support.user_home import closed_port
from tests.support.waiting import within_a_limit

pytestmark = pytest.mark.usefixtures("light_opencode")


async def test_faults_are_in_the_result_and_time_limits_hold(engine: RolloutEngine) -> None:
    """All at once, because most of them wait for something."""

    async def limited(seconds: float) -> RolloutResult:
        keeps: dict[str, Any] = {"setup": ["echo kept > workdir/kept"], "verify": ["grep kept workdir/kept"]}
        return await play(engine, "true", faulty("hang"), **keeps, agent_timeout_s=seconds)

    short = patience(2.0)
    dead, refused, hanging, slow, huge, setup = await asyncio.gather(
        play(engine, base_url=f"http://127.0.0.1:{closed_port()}/v1", verify=["true"]),
        play(engine, faulty("status", status=401), verify=["true"]),
        play(engine, "true", verify=["sleep 1000", "true"], command_timeout_s=short),
        within_a_limit(limited, lambda slow: slow.reward is not None),
        play(engine, "true", setup=["yes | head -c 30000000"], verify=["yes x | head -c 60000000", "true"]),
        play(engine, "true", setup=["sleep 1000"], verify=["true"], command_timeout_s=short),
    )
    for failed in (dead, refused):
        assert failed.reward is None
        assert str(failed.error).startswith("ProviderError: ")
        assert failed.proxy_turns[-1].upstream_status in (401, 502, 503)
        assert failed.proxy_turns[-1].upstream_error
    assert (hanging.reward, hanging.error) == (0.5, None)
    assert [command.exit_code for command in hanging.verify_results] == [124, 0]
    assert (slow.reward, slow.stop_condition) == (1.0, "agent_timeout")
    assert str(slow.error).startswith("agent timeout: ")
    assert slow.files == {"/home/user/workdir/kept": "kept\n"}
    assert huge.reward is not None
    assert all(len(command.stdout) <= 2000 for command in (*huge.setup_results, *huge.verify_results))
    assert str(setup.error).startswith("setup command failed (timed out): sleep 1000")
    assert setup.reward is None
