"""Why an episode ended, in the words of its family."""

from types import SimpleNamespace
from typing import Any

import pytest
from opencode_simulation.ledger import LedgerSummary
from opencode_simulation.task import termination_reason


@pytest.mark.parametrize(
    ("ended", "info", "stop", "reason"),
    [
        ({"terminated": True}, {}, "environment_done", "control_plane_signal"),
        ({"terminated": True}, {}, "max_turns", "control_plane_signal"),
        ({"truncated": True}, {"truncated_by": "the world"}, "environment_done", "control_plane_signal"),
        ({"truncated": True}, {"truncated_by": "max_steps"}, "environment_done", "max_steps"),
        ({"truncated": True}, {"truncated_by": "ledger_bytes"}, "environment_done", "max_steps"),
        ({}, {}, "max_turns", "max_steps"),
        ({}, {}, "max_user_turns", "max_steps"),
        ({}, {}, "user_stop", "user_stop"),
        ({}, {}, None, None),
        ({}, {}, "rollout_timeout", None),
        ({}, {}, "tool_backend_failed", None),
    ],
)
def test_the_reason_is_the_worlds_a_limits_or_the_users(
    ended: dict[str, bool], info: dict[str, object], stop: str | None, reason: str | None
) -> None:
    trace: Any = SimpleNamespace(stop_condition=stop)
    summary = LedgerSummary(world="w", seed=1, config={}, **ended)
    assert termination_reason(trace, summary, info) == reason
