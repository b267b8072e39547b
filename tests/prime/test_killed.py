"""A `vf-eval` is killed or interrupted in any stage: what it left at the platform is found by its label and deleted."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy
from rollout_sandbox.conformance.subject import host_pids_of
from rollout_sandbox.prime.command_line import main

from tests.prime.shell_runs import LABEL, shell_run
from tests.support.prime_api import Fault, Plan, PrimeApi
from tests.support.replies import faulty
from tests.support.rows import script
from tests.support.user_home import RunningEvaluation, UserHome
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROWS: list[dict[str, Any]] = [
    {"id": "preparing", "question": "row preparing: ?", "setup": "sleep 59721", "verify": ["true"]},
    {"id": "asking", "question": "row asking: ?", "verify": ["true"]},
    {"id": "scoring", "question": "row scoring: ?", "verify": ["sleep 59722"]},
    {"id": "done", "question": "row done: ?", "verify": ["true"]},
]
STAGES = ("preparing", "asking", "scoring")
POLICY = ScriptPolicy(
    script("asking", faulty("hang")), script("scoring", Reply(text="x")), script("done", Reply(text="x"))
)


@asynccontextmanager
async def evaluating(api: PrimeApi, root: Path, *names: str) -> AsyncIterator[tuple[ScriptedModel, RunningEvaluation]]:
    """A model, and a started `vf-eval` that plays these rows with it."""
    home = UserHome(root)
    options = shell_run(home, [row for row in ROWS if row["id"] in names])
    async with (
        ScriptedModel(POLICY) as model,
        home.running("run", model.base_url, *options, env=api.environment) as evaluation,
    ):
        yield model, evaluation


async def come_to(evaluation: RunningEvaluation, there: Callable[[], object]) -> None:
    """Wait until a run is where it shall be stopped."""
    await until(lambda: there() or evaluation.process.returncode is not None)
    assert evaluation.process.returncode is None, evaluation.log


def in_the_middle(model: ScriptedModel) -> bool:
    """Whether one rollout prepares, one asks the model, and one is scored, in sandboxes of this machine."""
    return model.active == 1 and all(host_pids_of(f"sleep\0{seconds}\0") for seconds in (59721, 59722))


async def clean() -> int:
    """What `opencode-sandboxes clean` of the run's label exits with."""
    return await asyncio.to_thread(main, ["clean", "--label", LABEL, "--yes"])


async def test_what_is_left_of_rollouts_that_prepared_ran_and_were_scored_is_cleaned_by_label(
    api: PrimeApi, tmp_path: Path
) -> None:
    async with evaluating(api, tmp_path, *STAGES) as (model, evaluation):
        await come_to(evaluation, lambda: in_the_middle(model))
        evaluation.process.kill()
        await evaluation.process.ended()
    assert len(api.living) == len(STAGES)
    assert await clean() == 0


@pytest.mark.parametrize(
    ("request_name", "plan", "fault"),
    [
        pytest.param("create", Plan(), Fault("create", delay=1.0), id="creating"),
        pytest.param("statuses", Plan(never_ready=True), None, id="starting"),
        pytest.param("delete", Plan(), Fault("delete", status=503, times=1 << 30), id="deleting"),
    ],
)
async def test_what_is_left_of_a_sandbox_that_was_asked_for_or_given_back_is_cleaned_by_label(
    api: PrimeApi, tmp_path: Path, request_name: str, plan: Plan, fault: Fault | None
) -> None:
    api.plan(plan)
    api.add(*([fault] if fault else []))
    async with evaluating(api, tmp_path, "done") as (_, evaluation):
        await come_to(evaluation, lambda: api.requests[request_name])
        evaluation.process.kill()
        await evaluation.process.ended()
    await until(lambda: api.living)
    assert await clean() == 0


async def test_an_evaluation_that_is_interrupted_twice_leaves_nothing(api: PrimeApi, tmp_path: Path) -> None:
    api.add(Fault("delete", delay=1.0, times=2), Fault("delete", status=500))
    async with evaluating(api, tmp_path, *STAGES) as (model, evaluation):
        await come_to(evaluation, lambda: in_the_middle(model))
        evaluation.process.send_signal(signal.SIGINT)
        await until(lambda: api.requests["delete"] or evaluation.process.returncode is not None)
        evaluation.process.send_signal(signal.SIGINT)
        finished = await evaluation.finish()
    assert len(api.sandboxes) == len(STAGES)
    assert api.living == [], finished.log
