"""Turns of a rollout in front of a real engine are kept, and branches go on from them."""

from collections.abc import Callable

import pytest
from opencode_runs.turns.kept import kept_turns

from tests.engines.playing import Engine, compare, play, row, training
from tests.engines.recorder import TEXT, bash, lines
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("sandboxes"), pytest.mark.opencode, pytest.mark.slow]


@pytest.mark.engine("training: turns that are kept, and branches from them")
async def test_trunk_and_branches_train_each_sampled_token_once(
    engine: Engine, home: UserHome, record_property: Callable[[str, object], None]
) -> None:
    kept, said = home.root / "kept", {"row kept:": [bash("echo [a-z]{3,9} >[a-c]"), bash("cat [a-c]"), bash(), TEXT]}
    keeping = [*training(engine), "--env.turns.keep", str(kept)]
    trunk = await play(engine, home, "trunk", [row("kept")], lines(said), *keeping)
    (trace,) = trunk.traces("kept")
    assert trace.ok, trace.errors
    of_trunk = compare([trace], trunk.recorder.calls)
    assert of_trunk.exact, of_trunk

    turns = sorted(kept_turns(kept), key=lambda turn: turn.turn)
    assert [(turn.turn, turn.unrestorable) for turn in turns] == [(1, None), (2, None), (3, None), (4, None)]
    branching = [*training(engine), "-r", "2", "-c", "2"]
    branches = await play(engine, home, "branches", turns[2].place, lines(said), *branching)
    traces = [trace for episode in branches.finished.episodes for trace in episode.traces]
    assert [(trace.ok, trace.info["branch"]["same_request"]) for trace in traces] == [(True, True)] * 2, traces
    first = [call.prompt for call in branches.recorder.calls]
    assert first.count(trunk.recorder.calls[2].prompt) == 2
    of_branches = compare(traces, branches.recorder.calls)
    record_property("figures", f"trunk: {of_trunk}; branches: {of_branches}")
    assert of_branches.exact, of_branches
