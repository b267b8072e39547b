"""Sub-agents and sub-LLM calls in front of a real engine, main agent and sub-agents trained alike."""

import asyncio
from collections.abc import Callable

import pytest

from tests.engines.playing import ANSWER, LONGEST, Engine, Run, compare, play, row, training
from tests.engines.recorder import TEXT, bash, lines, tool_call
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.timeout(3600), pytest.mark.usefixtures("sandboxes"), pytest.mark.opencode, pytest.mark.slow]

SUB = "org/sub-model"


def agent(job: str) -> str:
    """A call of a sub-agent."""
    return tool_call("task", description='"[a-z]{3,9}"', prompt=f'"{job}: do it"', subagent_type='"general"')


SAID = {
    "row rec:": [
        f"{agent('job one')}\n{agent('job two')}",
        bash(),
        tool_call("llm_subcall", prompt='"job three"', files=r"\[\]"),
        agent("job four"),
        TEXT,
    ],
    "job one:": [bash(), bash(), TEXT],
    "job two:": [bash(timeout=r"[1-9][0-9]{3}\.0"), tool_call("nothing", x='"[a-z]{3}"'), TEXT],
    "job four:": [f"{bash()}\n{bash()}", TEXT],
}


@pytest.fixture(scope="module")
def run(engine: Engine, shared_home: UserHome) -> Run:
    """Two rollouts, both at once."""
    options = [*training(engine), "-r", "2", "-c", "2", "--env.sub-model", SUB]
    options += ["--env.include-sub-llm-in-trajectory", "--env.sub-timeout", str(LONGEST)]
    tools, asked = ("bash", "task"), lines(SAID)
    return asyncio.run(
        play(
            engine,
            shared_home,
            "recursion",
            [row("rec")],
            asked,
            *options,
            env="opencode-rlm",
            tools=tools,
            limit=2 * ANSWER,
        )
    )


@pytest.mark.engine("training: sub-agents and sub-LLM calls, exact in branches of their own")
def test_sub_agents_are_exact(run: Run, record_property: Callable[[str, object], None]) -> None:
    traces = run.traces("rec")
    assert all(trace.ok for trace in traces), [trace.errors for trace in traces]
    compared = compare(traces, run.recorder.calls)
    record_property("figures", compared)
    assert compared.exact, compared
    subs = [trace for trace in traces if trace.agent.name == "sub"]
    assert [trace.num_branches for trace in subs] == [4, 4]
    assert len([call for call in run.recorder.calls if call.model == SUB]) >= 16
