"""A cassette plays its answers to whatever asks, and names where the requests differ from the recorded ones."""

from pathlib import Path
from typing import Any

import pytest
from opencode_env.scripted_model import ChatRequest, Reply
from opencode_env.scripted_model.policy import ChatBody

from scripts.replay import Cassette, CassettePolicy

Json = dict[str, Any]
TOOL = {"name": "bash", "description": "Runs.", "parameters": {"type": "object"}}
CALL = {"id": "c1", "name": "bash", "arguments": '{"command": "date"}'}
NODES: list[Json] = [
    {"message": {"role": "system", "content": "You work."}, "tools": [TOOL]},
    {"parent": 0, "message": {"role": "user", "content": "What day is it?"}},
    {"parent": 1, "message": {"role": "assistant", "reasoning_content": "I look.", "tool_calls": [CALL]}},
    {"parent": 2, "message": {"role": "tool", "tool_call_id": "c1", "content": "Monday, it is 10:00 here"}},
    {"parent": 3, "message": {"role": "assistant", "content": "Monday."}},
]
CALLS: list[Json] = [
    {"node": 2, "finish_reason": "tool_calls", "usage": {"prompt_tokens": 5, "completion_tokens": 3}},
    {"node": None},
    {"node": 4, "finish_reason": "stop"},
]


def cassette(*more: Json) -> Cassette:
    """A rollout of two turns, and further traces."""
    info = {"agent": {"version": "1"}}
    trace = {"id": "t1", "agent": {"name": "agent"}, "nodes": NODES, "calls": CALLS, "info": info}
    return Cassette.model_validate({"task": {"key": "day"}, "config": {}, "traces": [trace, *more]})


def wire(node: Json) -> Json:
    """A recorded message as it is sent."""
    message = dict(node["message"])
    if calls := message.pop("tool_calls", None):
        functions = [(one["id"], {"name": one["name"], "arguments": one["arguments"]}) for one in calls]
        message["tool_calls"] = [{"id": identity, "function": function} for identity, function in functions]
    return message


def asked(*messages: Json, tools: Any = (TOOL,)) -> ChatRequest:
    """A request."""
    body = {"messages": messages, "tools": [{"type": "function", "function": tool} for tool in tools]}
    return ChatRequest(ChatBody.model_validate(body), {}, 0)


FIRST, SECOND = [wire(node) for node in NODES[:2]], [wire(node) for node in NODES[:4]]


def test_the_same_requests_get_the_recorded_answers_also_when_they_are_sent_again() -> None:
    policy = CassettePolicy(cassette())
    answer, again, last = policy(asked(*FIRST)), policy(asked(*FIRST)), policy(asked(*SECOND))
    assert answer == again
    assert (answer.reasoning, answer.text, answer.finish_reason) == ("I look.", "", "tool_calls")
    (call,) = answer.tool_calls
    assert (call.id, call.name, call.arguments) == ("c1", "bash", CALL["arguments"])
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 3)
    assert last == Reply(text="Monday.", finish_reason="stop")
    assert (policy.asked, policy.all_differences()) == (2, [])


@pytest.mark.parametrize(
    ("messages", "tools", "said"),
    [
        (
            [*SECOND[:3], {**SECOND[3], "content": "Monday, it is 11:30 here"}],
            [TOOL],
            "turn 2, message 4 (tool): result of bash: 'Monday, it is 11:30 here' stands where "
            "'Monday, it is 10:00 here' stood (from character 0)",
        ),
        ([{"role": "system", "content": "You rest."}, *SECOND[1:]], [TOOL], "turn 2, message 1 (system): 'You rest."),
        (SECOND[:3], [TOOL], "turn 2, message 4 (tool): the request ends here; the recorded one goes on with"),
        ([*SECOND, {"role": "user", "content": "So?"}], [TOOL], "turn 2, message 5 (user): the recorded request ends"),
        ([*SECOND[:3], {"role": "user", "content": "So?"}], [TOOL], "a message of role user stands where one of role"),
        (SECOND, [{**TOOL, "description": "Runs it."}], "turn 2: the tool bash is described in another way: "),
        (SECOND, [], "turn 2: the tool bash is not offered any more"),
        (SECOND, [TOOL, {"name": "glob"}], "turn 2: the tool glob was not offered"),
    ],
)
def test_the_first_difference_is_named_by_turn(messages: list[Json], tools: list[Json], said: str) -> None:
    policy = CassettePolicy(cassette())
    policy(asked(*FIRST))
    assert policy(asked(*messages, tools=tools)).text == "Monday."
    (found,) = policy.all_differences()
    assert (said in str(found), found.turn) == (True, 2), found


def test_a_conversation_that_begins_in_another_way_goes_on_by_number() -> None:
    policy = CassettePolicy(cassette())
    other = {"role": "user", "content": "What day is it now?"}
    assert policy(asked(FIRST[0], other)).tool_calls[0].id == "c1"
    assert policy(asked(FIRST[0], other, *SECOND[2:])).text == "Monday."
    (found,) = policy.all_differences()
    assert (found.turn, found.message) == (1, 2)


def test_what_is_asked_beyond_the_recording_and_what_is_not_asked_is_told() -> None:
    policy = CassettePolicy(cassette())
    policy(asked(*FIRST))
    (early,) = policy.all_differences()
    assert str(early) == "turn 2: the agent did not ask again; 1 recorded answers were not played"
    policy(asked(*SECOND))
    assert "no answer to this request" in policy(asked(*SECOND, wire(NODES[4]), FIRST[1])).text
    (late,) = policy.all_differences()
    assert str(late).startswith("turn 3: the agent asks once more")


def test_equal_conversations_of_a_sub_seat_get_their_answers_in_order() -> None:
    nodes = [
        {"message": {"role": "user", "content": "Guess."}},
        {"parent": 0, "message": {"role": "assistant", "content": "one"}},
        {"parent": 0, "message": {"role": "assistant", "content": "two"}},
    ]
    side = {"agent": {"name": "sub"}, "nodes": nodes, "calls": [{"node": 1}, {"node": 2}]}
    policy = CassettePolicy(cassette(side))
    bodies = ChatBody.model_validate({"messages": [{"role": "user", "content": "Guess."}]})
    said = [policy(ChatRequest(bodies, {"x-session-id": name}, 0)).text for name in ("a", "b", "a")]
    assert said == ["one", "two", "one"]
    assert policy.differences == []


def test_a_saved_cassette_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "rollout.json"
    cassette().save(file)
    assert Cassette.load(file) == cassette()


def test_what_is_no_cassette_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"format": 2}')
    with pytest.raises(ValueError, match=r"other\.json is not a cassette: format"):
        Cassette.load(file)
