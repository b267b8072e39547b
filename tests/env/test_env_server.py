"""`opencode-env` behind verifiers' own env server: spawned workers, task data as JSON, episodes streamed back."""

import asyncio
import signal

import pytest
from opencode_env.scripted_model import MODEL_ID, Reply, SamplesPolicy, ScriptedModel
from opencode_env.scripted_model.policy import ChatRequest

from tests.support.replies import fault
from tests.support.served_env import served
from tests.support.user_home import UserHome
from tests.support.waiting import PATIENCE_SECONDS, cancelled, until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

SAMPLES = {"taskset": {"id": "opencode-env"}}


class SamplesButOne:
    """Solves the samples, except one, in which it never answers."""

    def __init__(self, silent_in: str) -> None:
        self.samples = SamplesPolicy(1.0)
        self.silent_in = next(sample.question for sample in self.samples.samples if sample.id == silent_in)

    def __call__(self, request: ChatRequest, /) -> Reply:
        if any(self.silent_in.strip() in text for text in request.user_texts):
            return Reply(faults=fault("hang"))
        return self.samples(request)


async def test_spawned_workers_play_rollouts_drop_cancelled_ones_and_a_terminated_server_leaves_nothing(
    home: UserHome,
) -> None:
    async with ScriptedModel(SamplesButOne("count-errors")) as model, served(home, SAMPLES) as env:
        dropped = asyncio.ensure_future(env.run("count-errors", model, MODEL_ID))
        await until(lambda: model.active == 1)
        assert len(home.sandboxes()) == 1
        dropped.cancel()
        await until(lambda: not home.sandboxes())

        names = ("arithmetic-orders", "csv-report")
        episodes = await asyncio.gather(*(env.run(name, model, MODEL_ID) for name in names))
        for episode, name in zip(episodes, names, strict=True):
            (trace,) = episode.traces
            assert episode.ok
            assert (trace.task.data.id, trace.reward) == (name, 1.0)
            assert trace.info["agent"]["exit_code"] == 0
            assert (trace.metrics["total_tool_calls"] or 0) > 0

        hanging = asyncio.ensure_future(env.run("count-errors", model, MODEL_ID))
        await until(lambda: model.active == 1)
        commands = home.processes().values()
        assert any("opencode" in command and " run --format" in command for command in commands), commands
        env.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await env.process.ended()
        await cancelled(hanging)
        # Python's tracker of shared resources ends itself, when it sees that all who used it are gone.
        await until(lambda: not home.processes())
        assert home.leftovers() == []
