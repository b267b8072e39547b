"""A service from before the agent, which the fence spares, runs what the agent left it while a score is made."""

import asyncio
from pathlib import Path

import pytest
from opencode_rubrics import RemoteHybridMathConfig, RemoteHybridMathRubric

from tests.rubrics.math_places import confined_place
from tests.rubrics.math_support import score
from tests.support.waiting import until

SERVICE = "while :; do test -f /app/job.py && python3 /app/job.py; sleep 0.05; done"
SPY = (Path(__file__).parent / "cheats" / "spared_spy.py").read_text()


@pytest.mark.parametrize("wakes", ["", "awake"])
async def test_the_scorer_is_out_of_reach_of_a_spared_service(wakes: str) -> None:
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig())
    async with confined_place(rubric) as place:
        await place.box.run_background(["sh", "-c", SERVICE, wakes], {}, "/tmp/service")
        mark = getattr(place.box, "mark_agent_start")  # noqa: B009
        await mark()
        await place.box.write("/app/job.py", SPY.replace("WAKES", wakes).encode())
        await place.do("echo 'I do not know' > /app/answer.txt")

        async def spies() -> bool:
            await place.do("sh -c 'sleep 0.3; : mathverdict'")
            return "spying" in await place.do("cat /tmp/spy.log 2>/dev/null || true")

        await until(spies)
        scored = await score(rubric, place.box, "271828182")
        assert scored.reward == 0.0
        await asyncio.sleep(0)
        seen = await place.do("cat /tmp/spy.log")
        assert "271828182" not in seen
        assert "stdin" not in seen, seen
