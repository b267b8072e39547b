"""Lone surrogates, which JSON can spell and UTF-8 cannot: no rollout can be lost, or end the others, by one."""

import asyncio
import json
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.scripted_model import Reply, ScriptPolicy, ToolCall
from rollout_sandbox.surrogates import replace_surrogates, whole_events, whole_text
from verifiers.v1.serve.delta import dump, pack, unpack
from verifiers.v1.trace import Error
from verifiers.v1.types import AssistantMessage, Tool

from tests.rubrics.conftest import trace_of
from tests.support.replies import bash
from tests.support.rows import probe, probe_arguments, script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

HALF = "\ud83d"
DONE = b"data: [DONE]\n\n"


def event(**delta: Any) -> bytes:
    """One event of a stream, ASCII as providers write it."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def deltas(events: list[bytes]) -> list[Any]:
    parsed = [json.loads(one.removeprefix(b"data: ")) for one in events if one != DONE]
    return [one["choices"][0]["delta"] for one in parsed]


@pytest.mark.parametrize(
    ("text", "whole"),
    [("plain", "plain"), ("ünd 😀", "ünd 😀"), ("a\ud83d", "a�"), ("\ude00b", "�b"), ("\ud83d\ude00", "😀")],
)
def test_surrogates_are_joined_or_replaced(text: str, whole: str) -> None:
    assert whole_text(text) == whole


def test_events_without_surrogates_pass_as_they_are() -> None:
    events = [b": keepalive\n\n", event(content="a"), event(content="ü"), DONE]
    assert whole_events(events) == events


def test_a_character_that_a_stream_brings_in_two_pieces_is_one() -> None:
    found = whole_events([event(content="a\ud83d"), event(reasoning="r"), event(content="\ude00b"), DONE])
    assert deltas(found) == [{"content": "a"}, {"reasoning": "r"}, {"content": "😀b"}]
    assert found[-1] == DONE


def test_pieces_of_different_texts_are_not_joined() -> None:
    def arguments(index: int, text: str) -> bytes:
        return event(tool_calls=[{"index": index, "function": {"arguments": text}}])

    found = whole_events([arguments(0, "\ud83d"), arguments(1, "\ude00"), arguments(0, "\ude00")])
    texts = [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas(found)]
    assert texts == ["", "�", "😀"]


def test_an_escaped_backslash_is_no_half() -> None:
    assert deltas(whole_events([event(content="\\ud83d")])) == [{"content": "\\ud83d"}]


def test_whatever_holds_a_half_can_be_written_afterwards() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt=f"p{HALF}"), f"reply{HALF}")
    trace.info = {"a": {f"k{HALF}": [HALF, {"b": (HALF, 1)}]}}
    trace.errors = [Error(type="X", message=HALF, traceback=HALF)]
    trace.nodes = [vf.MessageNode(message=AssistantMessage(content=HALF), sampled=True, token_ids=[1, 2])]
    with pytest.raises(ValueError, match="surrogates not allowed"):
        trace.model_dump_json()
    replace_surrogates(trace)
    assert json.loads(trace.model_dump_json())["info"] == {"a": {"k�": ["�", {"b": ["�", 1]}]}}
    assert (trace.last_reply, trace.nodes[0].token_ids) == ("reply�", [1, 2])


def test_whatever_holds_a_number_of_no_64_bits_can_be_sent_afterwards() -> None:
    """A tool that an agent declares holds any number; an error of the wire would be an end without a score."""
    trace = trace_of(vf.TaskData(idx=0), "reply")
    huge = 10**5000
    trace.info = {"a": [1, 2, huge], "b": {"c": (-huge, True)}, "d": [1, HALF], "e": [1, 2.5, True, None]}
    tool = Tool(name="t", parameters={"enum": [0, huge]})
    trace.nodes = [vf.MessageNode(message=AssistantMessage(content=""), sampled=True, token_ids=[1, 2], tools=[tool])]
    with pytest.raises(OverflowError):
        pack(dump(trace))
    replace_surrogates(trace)
    sent = unpack(pack(dump(trace)))
    most, least = 2**64 - 1, -(2**63)
    assert sent["info"] == {"a": [1, 2, most], "b": {"c": [least, True]}, "d": [1, "�"], "e": [1, 2.5, True, None]}
    assert sent["nodes"][0]["tools"][0]["parameters"] == {"enum": [0, most]}
    assert trace.nodes[0].token_ids == [1, 2]


def said(**parts: Any) -> Reply:
    """A reply that pydantic would not let a script have."""
    return Reply().model_copy(update=parts)


@pytest.fixture(scope="module")
def played(light_opencode: None, shared_home: UserHome) -> FinishedEvaluation:
    """One evaluation whose model and whose programs spell surrogates wherever they can."""
    calls = (ToolCall(name="bash", arguments={}).model_copy(update={"arguments": {"command": f"echo '{HALF}'"}}),)
    tool = bash("printf 'a\\xed\\xa0\\xbdb\\n'; touch \"$(printf 'x\\xff')\"; ls")
    scripts = [
        script("text", said(text=f"one{HALF}", tool_calls=tool.tool_calls), said(text=f"Done{HALF}.")),
        script("reasoning", said(text="so", reasoning=HALF)),
        script("arguments", said(tool_calls=calls), Reply(text="Done.")),
        script("files", tool, bash("cat >> $OPENCODE_ENV_STATE/stderr.log <<'E'\n\\ud800\nE"), Reply(text="Done.")),
        script("sound", bash("touch made"), Reply(text="Done.")),
    ]
    rows = [probe(name) for name in ("text", "reasoning", "arguments", "files")]
    rows.append(probe("sound", check="test -f /app/made"))
    arguments = [*probe_arguments(write_rows(shared_home.root / "rows.jsonl", rows)), "-c", "2"]
    return asyncio.run(shared_home.play("surrogates", ScriptPolicy(*scripts), *arguments))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text", "reasoning", "arguments", "files", "sound"])
def test_every_rollout_is_scored_and_written(played: FinishedEvaluation, name: str) -> None:
    assert played.exit_code == 0, played.log
    trace = played.trace(name)
    assert trace.ok, trace.errors
    assert trace.num_branches == 1


@pytest.mark.slow
def test_what_was_sampled_stays_visible(played: FinishedEvaluation) -> None:
    assert [message.content for message in played.trace("text").assistant_messages] == ["one�", "Done�."]
