"""No error of the policy's choosing, by the agent that can ask itself: what it breaks of its own run is scored."""

from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply

from tests.opencode.test_agent_errors import TRIGGER
from tests.rlm.episodes import play
from tests.support.replies import bash

pytestmark = pytest.mark.opencode


@pytest.mark.usefixtures("sandboxes")
async def test_a_loop_that_the_agent_has_put_into_opencodes_store_is_ended_and_scored(tmp_path: Path) -> None:
    made = bash(f"cat > /tmp/p.py <<'END'\n{TRIGGER}\nEND\npython3 /tmp/p.py")
    played = await play(tmp_path, [made, Reply(text="done")], lambda request: Reply(text="never asked"))
    assert played.tool_results()[0].strip() == "made"
    trace = played.main
    assert (played.problems, trace.stop_condition, trace.reward) == ([], "agent_error", 1.0)
    assert trace.metrics["agent_error_own"] == 1.0
    assert "keeps calling the model without end" in trace.info["agent"]["own_error"]
