"""Whatever breaks behind an answer costs sub-agents and sub-LLM calls as little as the main agent: nothing."""

from pathlib import Path

import pytest
from opencode_env.cli_agent.interception import RoleInterceptionServer
from opencode_env.scripted_model import ChatRequest, Reply, ScriptedModel

from tests.rlm.episodes import QUESTION, PolicyByRole, serving, task
from tests.support.broken_wire import IMPATIENT, Break, End, broken_wire
from tests.support.replies import bash, call
from tests.support.seats import SUB_MODEL

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

BREAKS = [
    Break(0, End.STALLED),  # main: starts the sub-agent
    Break(-1),  # sub-agent: runs a tool
    Break(-1, End.RESET),  # sub-agent: its answer
    Break(0.5, End.STALLED, body=True),  # main: makes a sub-LLM call
    Break(0.5, body=True),  # the sub-LLM call
    Break(-1, End.STALLED),  # main: runs a tool
    Break(-2),  # main: its answer
]
"""At the end of the answer, or silence; `tests/env/test_broken_delivery.py` has what breaks before."""


def sub(request: ChatRequest) -> Reply:
    """A sub-agent that runs a tool, or the answer of a sub-LLM."""
    if "the job" not in request.user_texts[-1]:
        return Reply(text="the sub-LLM's answer")
    return Reply(text="the job is done") if request.turn else bash("echo sub >> /tmp/runs")


async def test_a_broken_delivery_costs_sub_calls_nothing(tmp_path: Path) -> None:
    steps = [
        task("the job"),
        call("llm_subcall", prompt="a question"),
        bash("echo main >> /tmp/runs; cat /tmp/runs"),
        Reply(text="done"),
    ]
    rows = [{"id": "one", "question": QUESTION, "answer": "done"}]
    harness = {"id": "opencode-rlm", "opencode_config": IMPATIENT}
    options = {"interception": {"type": "server"}, "agent": {"harness": harness}}
    async with ScriptedModel(PolicyByRole(steps, sub)) as model, serving(model, tmp_path, rows, options) as served:
        server = served.env._interception
        assert isinstance(server, RoleInterceptionServer)
        async with broken_wire(server.base_url, BREAKS) as wire:
            server.base_url = wire.url
            (slot,) = served.slots()
            played = await served.play(slot)
    assert played.problems == []
    assert wire.breaks == []
    assert (len(played.asked(SUB_MODEL)), len(played.requests)) == (3, 7)
    main, sub_trace = played.main, played.sub
    assert (main.num_turns, main.num_branches, len(main.calls)) == (4, 1, 4)
    assert (sub_trace.num_turns, sub_trace.num_branches, len(sub_trace.calls)) == (3, 2, 3)
    assert main.metrics["repeated_calls"] == len(BREAKS)
    assert main.metrics["ghost_answers"] == 0.0
    assert played.tool_results()[-1] == "sub\nmain\n"
