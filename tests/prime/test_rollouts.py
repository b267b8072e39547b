"""Whole rollouts of `vf-eval` in sandboxes of the server, whose image holds the light program as OpenCode."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from opencode_env.samples import SAMPLES_PATH
from opencode_env.scripted_model import Reply, SamplesPolicy, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest
from opencode_runs.difficulty.rate import figures, rate

from tests.support.places import options_of, own_url
from tests.support.prime_api import OPENCODE_IMAGE, PrimeApi, with_opencode
from tests.support.rows import write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = pytest.mark.slow

SAMPLES = ("count-errors", "arithmetic-orders")
"""Samples whose verify commands run no agent code: that would need root in the sandbox, which the server's have not."""

HARD = "rotate-logs"


class Counting:
    """Solves the samples, and notes how many requests the server has had at each call."""

    def __init__(self, api: PrimeApi) -> None:
        self._api = api
        self._samples = SamplesPolicy(1.0)
        self.seen: list[int] = []

    def __call__(self, request: ChatRequest, /) -> Reply:
        self.seen.append(self._api.requests.total())
        return self._samples(request)


@dataclass(frozen=True)
class Run:
    """Two samples, one after the other."""

    finished: FinishedEvaluation
    api: PrimeApi
    before_first_call: int
    """Requests to the server, in the first rollout of its process, whose row has one setup command."""


@pytest.fixture(scope="module")
def samples(light_opencode: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = UserHome(tmp_path_factory.mktemp("home"))
    rows = {row["id"]: row for row in map(json.loads, SAMPLES_PATH.read_text().splitlines())}
    # Of three tasks the filter leaves out the one that is too hard; which it is, no sandbox is asked.
    rated = zip((*SAMPLES, HARD), (0.5, 0.75, 0.0), strict=True)
    dataset = write_rows(home.root / "samples.jsonl", [{**rows[name], "avg_reward": rating} for name, rating in rated])

    async def run() -> Run:
        async with PrimeApi(with_opencode()) as api, ScriptedModel(policy := Counting(api)) as model:
            arguments = ["opencode-env", "--env.taskset.dataset", str(dataset), "-c", "1", *options_of(own_url())]
            arguments += ["--env.agent.runtime.type", "prime", "--env.agent.runtime.image", OPENCODE_IMAGE]
            arguments += ["--env.taskset.difficulty-key", "avg_reward", "--env.taskset.min-avg-reward", "0.1"]
            finished = await home.run("samples", model.base_url, *arguments, env=api.environment)
            assert api.living == [], finished.log
            return Run(finished, api, policy.seen[0])

    return asyncio.run(run())


def test_the_samples_are_solved_in_sandboxes(samples: Run) -> None:
    finished = samples.finished
    assert finished.exit_code == 0, finished.log
    for episode in finished.episodes:
        (trace,) = episode.traces
        assert (trace.ok, trace.reward) == (True, 1.0), trace.errors
        assert trace.info["agent"]["exit_code"] == 0
        assert (trace.info["agent"]["install"]["way"], trace.info["agent"]["install"]["bytes"]) == ("present", 0)
        assert set(trace.info["agent"]["sandbox"]["waited"]) == {"place", "rate", "refused"}
        assert set(trace.info["agent"]["sandbox"]["seconds"]) == {"create", "ready"}
    assert len(finished.lines) == len(SAMPLES)


def test_each_rollout_had_one_sandbox_that_its_limits_bound(samples: Run) -> None:
    api = samples.api
    assert [sandbox.request["docker_image"] for sandbox in api.sandboxes] == [OPENCODE_IMAGE] * len(SAMPLES)
    assert {sandbox.request["timeout_minutes"] for sandbox in api.sandboxes} == {255}, "an hour for each stage"


def test_the_platform_is_asked_little_before_the_first_call_and_never_whether_something_ended(samples: Run) -> None:
    assert samples.before_first_call <= 8
    assert set(samples.api.requests) == {"create", "statuses", "Start", "delete"}
    assert samples.api.requests["create"] == samples.api.requests["delete"] == len(SAMPLES)


def test_what_was_played_in_them_is_rated(samples: Run) -> None:
    [source] = figures(rate([samples.finished.directory])).sources
    rated = {row.id: (row.attempts, row.avg_reward, row.errors) for row in source.rows}
    assert rated == dict.fromkeys(SAMPLES, (1, 1.0, 0))
