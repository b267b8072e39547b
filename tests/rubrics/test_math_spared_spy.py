"""A service from before the agent, which the fence spares, runs what the agent left it while a score is made.

The sandboxes here share the evaluation's user, as all do that are not started by root: in one with a user of its own
the scorer's streams belong to another, and opening them fails whether the service is held or not.
"""

from pathlib import Path

import pytest
from opencode_rubrics import RemoteHybridMathConfig, RemoteHybridMathRubric
from rollout_sandbox.confined import ConfinedRuntime, LocalSandboxConfig

from tests.rubrics.math_places import confined_place
from tests.rubrics.math_support import score
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("sandboxes")

SERVICE = "while :; do test -f /app/job.py && python3 /app/job.py; sleep 0.05; done"
SPY = (Path(__file__).parent / "cheats" / "spared_spy.py").read_text()


@pytest.mark.parametrize("wakes", ["", "awake"])
async def test_the_scorer_is_out_of_reach_of_a_spared_service(wakes: str) -> None:
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig())
    async with confined_place(rubric, LocalSandboxConfig(own_user=False)) as place:
        box = place.box
        assert isinstance(box, ConfinedRuntime)
        group = box.backend.sandbox.limits.group
        if wakes and (group is None or not group.can_freeze):
            pytest.skip("no control group can be frozen here")
        await box.run_background(["sh", "-c", SERVICE], {}, "/tmp/service")
        await box.mark_agent_start()
        await box.write("/app/job.py", SPY.replace("WAKES", wakes).encode())
        await box.write("/app/answer.txt", b"I do not know")

        async def spies() -> bool:
            return "spying" in (await box.run(["sh", "-c", "cat /tmp/spy.log || true"], {})).stdout

        await until(spies)
        for _ in range(2):
            assert (await score(rubric, box, "271828182")).reward == 0.0
        seen = (await box.run(["cat", "/tmp/spy.log"], {})).stdout
    assert "271828182" not in seen
    assert "stdin" not in seen, seen
    await rubric.teardown()
