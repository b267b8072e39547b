"""Whole rollouts of `vf-eval` whose sandboxes reach the interception at an own URL, behind a real reverse proxy."""

import json
from collections.abc import AsyncIterator

import pytest
from opencode_env.samples import SAMPLES_PATH
from opencode_env.scripted_model import Reply, SamplesPolicy, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest

from tests.support.prime_api import OPENCODE_IMAGE, PrimeApi, with_opencode
from tests.support.replies import bash, fault
from tests.support.reverse_proxy import reverse_proxy
from tests.support.rows import write_rows
from tests.support.user_home import UserHome
from tests.support.waiting import until

pytestmark = pytest.mark.slow

SAMPLE = "arithmetic-orders"
PRIME = ["--env.agent.runtime.type", "prime", "--env.agent.runtime.image", OPENCODE_IMAGE]


@pytest.fixture
async def api(light_opencode: None) -> AsyncIterator[PrimeApi]:
    """A server whose image holds the light program as OpenCode."""
    async with PrimeApi(with_opencode()) as started:
        yield started
        assert started.living == []


@pytest.fixture
def one_sample(home: UserHome) -> list[str]:
    """Arguments of an evaluation of one sample in a Prime sandbox."""
    rows = [row for row in map(json.loads, SAMPLES_PATH.read_text().splitlines()) if row["id"] == SAMPLE]
    return ["opencode-env", "--env.taskset.dataset", str(write_rows(home.root / "sample.jsonl", rows)), *PRIME]


async def test_a_long_model_call_survives_a_proxy_that_waits_for_less(
    home: UserHome, one_sample: list[str], api: PrimeApi
) -> None:
    """The model takes twice as long for its first answer as the proxy bears silence."""
    solved = SamplesPolicy(1.0)
    model: ScriptedModel

    def policy(request: ChatRequest, /) -> Reply:
        slow = fault("delay", seconds=9.0) if len(model.requests) <= 1 else ()
        return solved(request).model_copy(update={"faults": slow})

    async with reverse_proxy(idle=4.5) as proxy, ScriptedModel(policy) as model:
        arguments = [*one_sample, *proxy.options, "--env.gateway.answer-after", "1"]
        finished = await home.run("long", model.base_url, *arguments, env=api.environment)
        trace = finished.trace(SAMPLE)
        assert (trace.ok, trace.reward) == (True, 1.0), finished.log
        assert (proxy.cuts, trace.metrics["repeated_calls"]) == (0, 0.0)
        assert b": keepalive\n" in proxy.bytes
        assert len(model.requests) == trace.num_turns
        assert all(request.body["stream"] for request in model.requests), "nothing else can be kept alive"


async def test_a_rollout_whose_proxy_goes_ends_with_a_typed_error_and_is_tried_again(
    home: UserHome, one_sample: list[str], api: PrimeApi
) -> None:
    solved = SamplesPolicy(1.0)
    model: ScriptedModel

    def policy(request: ChatRequest, /) -> Reply:
        return bash("sleep 600", timeout=700_000) if len(model.requests) <= 1 else solved(request)

    deleted = api.requests["delete"]
    async with reverse_proxy() as proxy, ScriptedModel(policy) as model:
        arguments = [*one_sample, *proxy.options, "--env.gateway.probe", "0.5", "--env.retries.max-retries", "1"]
        async with home.running("gone", model.base_url, *arguments, env=api.environment) as evaluation:
            await model.wait_for_requests(1)
            await until(lambda: b"sleep 600" in proxy.bytes)
            await proxy.stop()
            await until(lambda: api.requests["delete"] > deleted)
            await proxy.start()
            finished = await evaluation.finish()
    trace = finished.trace(SAMPLE)
    assert (trace.ok, trace.reward) == (True, 1.0), finished.log
    assert f"http://127.0.0.1:{proxy.port}, is dead: Client" in finished.log
    assert "TunnelError" in finished.log
