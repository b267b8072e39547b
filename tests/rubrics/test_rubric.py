"""A rubric records like a task does, and tells errors from zeros."""

import asyncio

import pytest
import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, Rubric, RubricConfig, live_rubric, rubrics_in_use

from tests.rubrics.conftest import trace_of


class ToyConfig(RubricConfig):
    type: str = "tests.rubrics.test_rubric:ToyRubric"
    size: int = 1


class ToyRubric(Rubric[ToyConfig]):
    torn_down = 0

    @vf.reward(weight=0.5)
    async def plain(self, task: vf.TaskData) -> float:
        return self.config.size

    @vf.reward(weight=2.0)
    async def mapped(self) -> dict[str, float]:
        return {"left": 1.0, "right": 0.0}

    @vf.metric
    async def seen_rewards(self, trace: AnyTrace) -> float:
        return len(trace.rewards)

    @vf.reward
    async def needs_box(self, runtime: vf.Runtime) -> float:
        raise AssertionError("unreachable")

    async def teardown(self) -> None:
        type(self).torn_down += 1


DATA = vf.TaskData(prompt="?")


async def test_rewards_and_metrics_are_recorded_with_their_weights() -> None:
    trace = trace_of(DATA)
    await ToyRubric(ToyConfig(size=3)).score(DATA, trace, None)
    assert {name: (r.score, r.weight) for name, r in trace.rewards.items() if r} == {
        "plain": (3.0, 0.5),
        "left": (1.0, 2.0),
        "right": (0.0, 2.0),
    }
    assert trace.metrics == {"seen_rewards": 3.0, "answer_unreadable": 0.0}


class FailingRubric(Rubric[RubricConfig]):
    @vf.reward
    async def broken(self) -> float:
        raise KeyError("what")

    @vf.reward
    async def slow(self, trace: AnyTrace) -> float:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            trace.info["slow"] = "cancelled"
            raise
        return 1.0


async def test_a_reward_that_raises_is_an_error_and_nothing_reads_as_scored() -> None:
    trace = trace_of(DATA)
    with pytest.raises(vf.TaskError, match="rubric FailingRubric scoring: KeyError: 'what'"):
        await FailingRubric(RubricConfig(type="failing")).score(DATA, trace, None)
    assert trace.rewards == {"broken": None, "slow": None}
    assert trace.info["slow"] == "cancelled"


class BoundlessRubric(Rubric[RubricConfig]):
    @vf.reward
    async def boundless(self) -> float:
        return float("inf")


async def test_a_reward_that_is_no_finite_number_is_a_zero() -> None:
    trace = trace_of(DATA)
    await BoundlessRubric(RubricConfig(type="boundless")).score(DATA, trace, None)
    assert (trace.reward, trace.metrics["answer_unreadable"]) == (0.0, 1.0)
    assert "reward 'boundless' is inf: a reward must be a finite number" in trace.info["unreadable"][0]["error"]


class GoneRubric(Rubric[RubricConfig]):
    @vf.reward
    async def gone(self) -> float:
        raise vf.SandboxError("gone")


async def test_an_error_that_names_its_boundary_keeps_its_type() -> None:
    with pytest.raises(vf.SandboxError, match="gone"):
        await GoneRubric(RubricConfig(type="gone")).score(DATA, trace_of(DATA), None)


def test_equal_configs_share_one_live_rubric() -> None:
    assert live_rubric(ToyConfig()) is live_rubric(ToyConfig(size=1))
    assert live_rubric(ToyConfig()) is not live_rubric(ToyConfig(size=2))


async def test_the_last_holder_tears_the_rubrics_down_once() -> None:
    first = live_rubric(ToyConfig())
    ToyRubric.torn_down = 0
    async with rubrics_in_use():
        async with rubrics_in_use():
            live_rubric(ToyConfig(size=7))
        assert ToyRubric.torn_down == 0
        assert live_rubric(ToyConfig()) is first
    assert ToyRubric.torn_down >= 2
    assert live_rubric(ToyConfig()) is not first


class BadConfig(RubricConfig):
    type: str = "tests.rubrics.test_rubric:BadRubric"


class BadRubric(Rubric[BadConfig]):
    async def teardown(self) -> None:
        raise OSError("no")


async def test_a_teardown_that_fails_keeps_no_other_from_running(caplog: pytest.LogCaptureFixture) -> None:
    ToyRubric.torn_down = 0
    async with rubrics_in_use():
        live_rubric(ToyConfig(size=11))
        live_rubric(BadConfig())
        live_rubric(ToyConfig(size=12))
    assert ToyRubric.torn_down >= 2
    assert 'teardown of rubric "BadRubric" failed' in caplog.text


class Plain(Rubric):
    @vf.reward
    async def told(self, trace: AnyTrace) -> float:
        return float(bool(trace.last_reply))


async def test_a_rubric_without_options_needs_no_configuration_class() -> None:
    for rubric in (Plain(), live_rubric(RubricConfig(type=f"{__name__}:Plain"))):
        trace = trace_of(DATA, "yes")
        await rubric.score(DATA, trace, None)
        assert trace.reward == 1.0


@pytest.mark.parametrize("ident", ["unknown", f"{__name__}:DATA", f"{__name__}:ToyRubric"])
def test_a_rubric_that_cannot_be_found_by_its_config_is_refused(ident: str) -> None:
    with pytest.raises(LookupError, match='names no rubric with a "RubricConfig"'):
        live_rubric(RubricConfig(type=ident))
