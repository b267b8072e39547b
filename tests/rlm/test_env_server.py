"""`opencode-rlm` behind verifiers' own env server, as prime-rl talks to it: the sub trace crosses the wire."""

from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel

from tests.rlm.episodes import PolicyByRole
from tests.support.replies import call
from tests.support.rows import write_rows
from tests.support.seats import MAIN_MODEL, SUB_MODEL
from tests.support.served_env import served
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

STEPS = [call("llm_subcall", prompts=[f"Read {number}." for number in range(40)]), Reply(text="done")]


async def test_an_episode_of_a_served_environment_brings_its_sub_trace(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": "one", "question": "Go.", "answer": "done"}])
    taskset = {"id": "opencode-rlm", "dataset": str(rows)}
    fields = {"taskset": taskset, "sub_model": SUB_MODEL, "include_sub_llm_in_trajectory": True}
    policy = PolicyByRole(STEPS, lambda _: Reply(text="read"))
    async with ScriptedModel(policy) as model, served(UserHome(tmp_path / "home"), fields, 1) as env:
        episode = await env.run("one", model, MAIN_MODEL)
    assert episode.ok
    main, sub = episode.traces
    assert (main.agent.name, sub.agent.name) == ("agent", "sub")
    assert (main.agent.trainable, sub.agent.trainable) == (True, True)
    assert main.reward == sub.reward == 1.0
    assert sub.num_branches == main.metrics["sub_llm_turns"] == 40
