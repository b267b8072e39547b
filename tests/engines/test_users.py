"""A user that a real engine's model plays, in front of an agent that the same engine's model plays."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.engines.playing import Engine, Run, compare, play, row, training
from tests.engines.recorder import TEXT, bash, lines, literal
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("sandboxes"), pytest.mark.opencode, pytest.mark.slow]

USER = "org/sub-model"
ROW = row("played", user_simulation={"enabled": True, "system_prompt": "You are Ann and want two files."})
SAID = {"You are Ann": [TEXT, literal("###STOP###")], "row played:": [bash(), TEXT, bash(), TEXT]}


async def converse(engine: Engine, home: UserHome, *options: str) -> tuple[Run, Any]:
    """The run, and the agent's trace of it, which says that the user spoke once and then wanted no more."""
    run = await play(engine, home, "played", [ROW], lines(SAID), "--env.user.model", USER, *options)
    (trace,) = [trace for trace in run.traces("played") if trace.agent.name == "agent"]
    assert (trace.ok, trace.stop_condition, trace.reward) == (True, "user_stop", 1.0), trace.errors
    assert trace.info["user_simulation"] == {"played_by": USER, "turns": 1}
    assert trace.info["agent"]["segments"] == 2
    return run, trace


def models(asked: Sequence[Any]) -> list[str]:
    """Which model each call asked."""
    return [one.body["model"] for one in asked]


@pytest.mark.engine("chat: a user that the model plays")
async def test_a_user_that_a_model_plays_goes_on_and_stops(engine: Engine, home: UserHome) -> None:
    run, trace = await converse(engine, home)
    assert trace.num_turns == 4
    assert models(run.recorder.chats).count(USER) == 2


@pytest.mark.engine("training: a user that the model plays, and who never trains")
async def test_what_a_user_says_never_trains(
    engine: Engine, home: UserHome, record_property: Callable[[str, object], None]
) -> None:
    run, trace = await converse(engine, home, *training(engine))
    assert models(run.recorder.generated).count(USER) == 2
    compared = compare([trace], [call for call in run.recorder.calls if call.model != USER])
    record_property("figures", compared)
    assert compared.exact, compared
    assert [one.agent.trainable for one in run.traces("played") if one.agent.name == "user"] == [False]
