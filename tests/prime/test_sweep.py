"""Every tenth request to the platform fails, at random: each rollout ends well or says what failed, nothing is left."""

from collections import Counter
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.prime.shell_runs import shell_run
from tests.support.prime_api import Fault, PrimeApi
from tests.support.sizes import size
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = pytest.mark.slow

ROLLOUTS, AT_ONCE = size((16, 8), (500, 16))
FOR_EVER = 1 << 30
FAULTS = [
    Fault("*", status=503, share=0.04, times=FOR_EVER),
    Fault("*", status=500, share=0.02, times=FOR_EVER),
    Fault("*", status=408, share=0.01, times=FOR_EVER),
    Fault("*", lost=True, share=0.03, times=FOR_EVER),
]
ROWS = [
    {"id": f"row-{number}", "question": "capital of France?", "verify": ["grep -qx Paris answer.txt"]}
    for number in range(ROLLOUTS)
]


def ends(finished: FinishedEvaluation) -> Counter[str]:
    """How many rollouts ended how: `scored`, or with which error."""
    found: Counter[str] = Counter()
    for episode in finished.episodes:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        scored = [trace.reward for trace in episode.traces] == [1.0]
        found[errors[-1].type if errors else "scored" if scored else "not scored"] += 1
    return found


async def test_each_rollout_ends_well_or_with_the_error_of_the_platform_and_nothing_is_left(
    api: PrimeApi, tmp_path: Path
) -> None:
    home = UserHome(tmp_path)
    api.add(*FAULTS)
    async with ScriptedModel(ScriptPolicy.of(Reply(text="Paris")), record=False) as model:
        arguments = [*shell_run(home, ROWS), "-c", str(AT_ONCE)]
        finished = await home.run("sweep", model.base_url, *arguments, env=api.environment)
        left = [sandbox.id for sandbox in api.living]
    found = ends(finished)
    assert found.total() == ROLLOUTS, finished.log[-4000:]
    assert set(found) <= {"scored", "SandboxGatewayError"}, found
    assert found["scored"] > ROLLOUTS / 2
    assert api.faults_happened > ROLLOUTS / 2
    assert left == [], finished.log[-4000:]
