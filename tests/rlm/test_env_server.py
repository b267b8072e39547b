"""`opencode-rlm` behind verifiers' own env server, as prime-rl talks to it: the sub trace crosses the wire."""

from pathlib import Path

import pytest
from opencode_env.scripted_model import ScriptedModel

from tests.rlm.needle_policies import reader, recursive
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.served_env import served
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

FIELDS = {"taskset": {"id": "opencode-rlm"}, "sub_model": SUB_MODEL, "include_sub_llm_in_trajectory": True}


async def test_an_episode_of_a_served_environment_brings_its_sub_trace(tmp_path: Path) -> None:
    async with (
        ScriptedModel(lambda r: reader(r) if r.model == SUB_MODEL else recursive(r)) as model,
        served(UserHome(tmp_path), FIELDS) as env,
    ):
        episode = await env.run("letters-unwell", model, MAIN_MODEL)
    assert episode.ok
    main, sub = episode.traces
    assert (main.agent.name, sub.agent.name) == ("agent", "sub")
    assert (main.agent.trainable, sub.agent.trainable) == (True, True)
    assert main.reward == sub.reward == 1.0
    assert sub.num_branches == 40
    assert main.metrics["sub_llm_turns"] == 40
    assert (main.metrics["sub_llm_max_parallel"] or 0) > 1
