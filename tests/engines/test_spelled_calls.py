"""A call whose mark a real engine's model spells in ordinary tokens, as both clients read it."""

import pytest

from tests.engines.playing import Engine, play, row, training
from tests.engines.recorder import TEXT, bash, lines, spelled
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("sandboxes"), pytest.mark.opencode, pytest.mark.slow]

SAID = lines({"row spelled:": [spelled(bash()), TEXT]})


@pytest.mark.engine("chat: a call that is spelled in ordinary tokens is a call, and counted")
async def test_the_engines_parser_reads_it_as_a_call(engine: Engine, home: UserHome) -> None:
    options = ["--sampling.logprobs", "--env.gateway.ask-streamed", "false"]
    run = await play(engine, home, "spelled", [row("spelled")], SAID, *options)
    (trace,) = run.traces("spelled")
    assert trace.ok, trace.errors
    assert (trace.num_turns, trace.metrics["bash_calls"], trace.metrics["spelled_calls"]) == (2, 1, 1)


@pytest.mark.engine("training: the same call is text, and counted")
async def test_the_renderer_reads_it_as_text(engine: Engine, home: UserHome) -> None:
    run = await play(engine, home, "spelled", [row("spelled")], SAID, *training(engine))
    (trace,) = run.traces("spelled")
    assert trace.ok, trace.errors
    assert (trace.num_turns, trace.metrics["bash_calls"], trace.metrics["spelled_calls"]) == (1, 0, 1)
