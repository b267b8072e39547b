"""A user on the other side of an agent: scripted, played by a model, and failing."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.scripted_model import Fault, FaultKind, Reply, Script, ScriptedModel, ScriptPolicy
from opencode_env.user_simulation import STOP, asked_user

from tests.simulation.episodes import problems, row, serving
from tests.support.replies import bash
from tests.support.rows import script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = pytest.mark.usefixtures("light_opencode")

USER = "the-user"
WANTS = {"enabled": True, "system_prompt": "You want a number, and its reason.", "llm": USER}


Run = tuple[FinishedEvaluation, list[dict[str, Any]]]
"""One `vf-eval` over rows with every kind of user, and the requests that reached the user's model."""


def says(*lines: str) -> Sequence[Reply]:
    return [Reply(text=line) for line in lines]


@pytest.fixture(scope="module")
def run(light_opencode: None, shared_home: UserHome) -> Run:
    rows = [
        row("scripted", user_simulation={"script": ["And the second?", "Thanks."]}),
        row("played", user_simulation={**WANTS, "llm_args": {"temperature": 0.5}}),
        row("off", user_simulation={**WANTS, "enabled": False}),
        row("broken", user_simulation={"enabled": True, "persona": "x"}),
    ]
    steps = [bash("echo one > /app/note"), *says("First."), bash("cat /app/note"), *says("Second.", "done")]
    policy = ScriptPolicy(
        script("scripted", *steps),
        script("played", *says("Seven.", "done")),
        script("off", *says("done")),
        Script(steps=tuple(says("Why seven?", f"Good. {STOP}")), model=USER, match="Seven."),
    )

    async def evaluate() -> Run:
        async with ScriptedModel(policy) as model:
            dataset = write_rows(shared_home.root / "rows.jsonl", rows)
            arguments = ["opencode-env", "--env.taskset.dataset", str(dataset), "-c", "2"]
            finished = await shared_home.run("users", model.base_url, *arguments)
            return finished, [dict(request.body) for request in model.requests if request.body["model"] == USER]

    return asyncio.run(evaluate())


def test_a_scripted_user_goes_on_until_its_script_ends(run: Run) -> None:
    trace = run[0].trace("scripted")
    assert trace.ok, trace.errors
    assert (trace.stop_condition, trace.reward) == ("user_stop", 1.0)
    assert trace.info["user_simulation"] == {"played_by": "script", "turns": 2}
    assert (trace.num_branches, trace.num_turns, trace.info["agent"]["segments"]) == (1, 5, 3)
    said = [message.content for message in trace.messages if message.role == "user"]
    assert said[1:] == ["And the second?", "Thanks."]
    assert [str(message.content) for message in trace.tool_messages][1] == "one\n"


def test_a_model_plays_a_user_who_hears_the_agent_and_stops(run: Run) -> None:
    finished, asked = run
    agent, user = finished.episode("played").traces
    assert (agent.ok, user.ok) == (True, True), (agent.errors, user.errors)
    assert (agent.stop_condition, agent.reward) == ("user_stop", 1.0)
    assert agent.info["user_simulation"] == {"played_by": USER, "turns": 1}
    assert [message.content for message in agent.messages if message.role == "user"][1:] == ["Why seven?"]
    seats = [trace.agent for trace in (agent, user) if trace.agent is not None]
    assert [(seat.name, seat.trainable) for seat in seats] == [("agent", True), ("user", False)]
    assert (user.num_turns, user.num_branches) == (2, 1)
    system, *heard = asked[-1]["messages"]
    assert "You want a number, and its reason." in system["content"]
    assert "row played: do what the script says" in system["content"]
    assert [message["content"] for message in heard] == ["Seven.", "Why seven?", "done"]
    assert {body["temperature"] for body in asked} == {0.5}


def test_a_row_whose_user_is_off_is_played_without_one(run: Run) -> None:
    trace = run[0].trace("off")
    assert (trace.ok, trace.reward, trace.num_turns) == (True, 1.0, 1)
    assert "user_simulation" not in trace.info


def test_a_user_that_cannot_be_played_is_an_error(run: Run) -> None:
    episode = run[0].episode("broken")
    assert not episode.ok
    (problem,) = problems(episode)
    assert problem.startswith("TaskError: task ")
    assert "its user_simulation cannot be played" in problem


async def test_a_conversation_ends_when_the_user_has_said_all_it_may(tmp_path: Path) -> None:
    endless = row("one", user_simulation={"script": ["More."] * 9})
    policy = ScriptPolicy(script("one", *says("1", "2", "done", "4")))
    async with serving(tmp_path, policy, endless, user_simulation={"max_turns": 2}) as served:
        episode = await served.play()
    (trace,) = episode.traces
    assert problems(episode) == []
    assert (trace.stop_condition, trace.num_turns, trace.reward) == ("max_user_turns", 3, 1.0)


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Reply(faults=(Fault(kind=FaultKind.STATUS, status=400),)), "BrokenUserError", "the user could not be played"),
        (Reply(faults=(Fault(kind=FaultKind.STATUS, status=404),)), "EnvError", "the user could not be played"),
        (Reply(text=" \n"), "BrokenUserError", "its model said nothing"),
    ],
)
async def test_a_user_who_fails_is_an_error_of_the_rollout_and_no_reward(
    tmp_path: Path, reply: Reply, kind: str, words: str
) -> None:
    asked = row("one", user_simulation=WANTS)
    policy = ScriptPolicy(Script(steps=(reply,), model=USER, repeat_last=True), script("one", *says("Seven.")))
    async with serving(tmp_path, policy, asked) as served:
        episode = await served.play()
    trace = episode.traces[0]
    assert (trace.ok, episode.ok) == (False, False)
    assert trace.errors[0].type == kind
    assert words in trace.errors[0].message
    assert set(trace.rewards.values()) <= {None}


class OpenedData(vf.TaskData):
    """A task that its user opens."""

    user_simulation: dict[str, Any] = {}


async def test_a_user_opens_a_conversation_that_no_prompt_opens(tmp_path: Path) -> None:
    user = Script(steps=tuple(says("Which number?", STOP)), model=USER)
    policy = ScriptPolicy(user, Script(steps=tuple(says("Seven.")), match="Which number?"))
    task = vf.Task(OpenedData(idx=0, prompt=None, user_simulation={**WANTS, "llm": "another-model"}))
    async with serving(tmp_path, policy, user={"model": USER}) as served:
        episode = await served.play(task)
    assert problems(episode) == []
    trace = episode.traces[0]
    assert [message.content for message in trace.messages if message.role == "user"] == ["Which number?"]
    assert trace.info["user_simulation"] == {"played_by": USER, "turns": 1}


@pytest.mark.parametrize(
    ("value", "plays"),
    [
        (None, False),
        ({}, False),
        ({"enabled": False, "script": ["Hello."]}, False),
        ({"system_prompt": "You want something.", "llm": "gpt-4.1"}, False),
        ({"script": ["Hello."]}, True),
        ({"enabled": True, "system_prompt": "You want something.", "llm": "gpt-4.1", "llm_args": {}}, True),
    ],
)
def test_a_row_has_a_user_where_eval_protocol_gives_it_one_or_it_has_a_script(value: Any, plays: bool) -> None:
    assert (asked_user(vf.Task(OpenedData(idx=0, user_simulation=value or {}))) is not None) == plays


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"script": ["Hello.", " "]}, r"script\.1\s+String should match pattern"),
        ({"enabled": True}, "needs a system_prompt that says who plays, or a script"),
    ],
    ids=["a script without a word", "nothing to want"],
)
def test_a_user_that_says_or_wants_nothing_cannot_be_played(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(vf.TaskError, match=words):
        asked_user(vf.Task(OpenedData(idx=3, user_simulation=asked)))
