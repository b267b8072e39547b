"""Prompts of messages and pictures, and further turns of the user, reach the model as one growing conversation."""

import base64
import struct
import zlib
from itertools import pairwise
from typing import Any

import pytest
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Reply
from verifiers.v1.agent import TimeoutConfig
from verifiers.v1.types import ImageUrlContentPart, ImageUrlSource, SystemMessage, TextContentPart, UserMessage

from tests.support.places import Place
from tests.support.replies import bash
from tests.support.rollouts import conversation, play
from tests.support.waiting import within_a_limit

pytestmark = pytest.mark.opencode

DONE = Reply(text="Done.")
LEFT = """
state=$OPENCODE_ENV_STATE
for kind in plugin plugins; do
    mkdir -p $state/config/opencode/$kind
    echo 'require("node:fs").writeFileSync("/app/ran", "")' >$state/config/opencode/$kind/evil.js
done
echo '{"agent": {"build": {"prompt": "You are evil."}}}' >$state/config/opencode/opencode.jsonc
(setsid sh -c 'while sleep 0.1; do date +%N >/app/beat; cat /tmp/opencode/mark; done' >/app/mark 2>/dev/null &)
until [ -s /app/beat ]; do sleep 0.1; done
"""
BEATS = "a=$(cat /app/beat); sleep 1; [ $a = $(cat /app/beat) ] && echo still; cat /app/mark; ls -d /app/ran"


def png() -> bytes:
    """A picture of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")) + chunk(b"IEND", b"")


PICTURE = f"data:image/png;base64,{base64.b64encode(png()).decode()}"


def message(text: str, *pictures: str) -> UserMessage:
    images = [ImageUrlContentPart(image_url=ImageUrlSource(url=url)) for url in pictures]
    return UserMessage(content=[TextContentPart(text=text), *images])


def urls(content: Any) -> list[str]:
    """Of the pictures in a message."""
    if isinstance(content, str):
        return []
    return [part["image_url"]["url"] for part in content if part["type"] == "image_url"]


def texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


async def test_messages_become_one_prompt_with_their_pictures_and_system_text(confined: Place) -> None:
    prompt = [SystemMessage(content="Be brief."), message("Look at this.", PICTURE), UserMessage(content="And answer.")]
    played = await play(confined, DONE, prompt=prompt)
    assert played.trace.ok, played.trace.errors
    system, user = played.requests[0].body["messages"]
    assert system["content"].endswith("\nBe brief.")
    assert "Look at this.\n\nAnd answer." in texts(user["content"])
    assert urls(user["content"]) == [PICTURE]
    assert played.trace.num_branches == 1


async def test_a_prompt_that_opencode_cannot_take_is_refused_before_it_starts(confined: Place) -> None:
    played = await play(confined, DONE, prompt=[message("Look.", "http://127.0.0.1/picture.png")])
    assert not played.trace.ok
    assert "OpenCode takes base64 data URLs" in played.error
    assert played.requests == []


async def test_further_turns_continue_one_session_that_only_grows_and_meet_nothing_that_the_first_left(
    place: Place,
) -> None:
    """The first prompt has more than a megabyte, and arrives whole. Its segment leaves a process and configuration."""
    prompt = "Do the first thing." + "".join(f"{number} é\u2028\n" for number in range(100_000))
    replies = [bash(f"echo one > /app/note\n{LEFT}"), Reply(text="First."), bash(BEATS), bash("cat /app/note"), DONE]
    async with conversation(place, replies, harness={"images": True}) as (talk, model):
        first = await talk.turn(prompt)
        second = await talk.turn([message("--last thing\n", PICTURE)])
    trace = talk.trace
    assert trace.ok, trace.errors
    assert [segment.last_reply for segment in (first, second)] == ["First.", "Done."]
    assert (trace.num_branches, trace.num_turns) == (1, 5)
    assert trace.reward == 1.0
    assert trace.info["agent"]["segments"] == 2
    assert len({request.headers["x-session-affinity"] for request in model.requests}) == 1
    _, seen, note = [str(message.content) for message in trace.messages if message.role == "tool"]
    assert seen.startswith("still\n")
    assert "cannot access '/app/ran'" in seen
    assert note == "one\n"
    bodies = [request.body["messages"] for request in model.requests]
    for before, after in pairwise(bodies):
        assert after[: len(before)] == before
    said = [message["content"] for message in bodies[-1] if message["role"] == "user"]
    first_said, last_said = [texts(content) for content in said if "thing" in texts(content)]
    assert first_said == prompt
    assert last_said.endswith("--last thing\n")
    assert [url for content in said for url in urls(content)] == [PICTURE]


@pytest.mark.usefixtures("light")
async def test_a_later_turn_that_runs_out_of_time_leaves_its_own_record(confined: Place) -> None:
    replies = [Reply(text="First."), bash("sleep 600", timeout=700_000)]

    async def limited(seconds: float) -> AnyTrace:
        timeout = {"timeout": TimeoutConfig(rollout=seconds)}
        async with conversation(confined, replies, settings=timeout) as (talk, _):
            await talk.turn("Do the first thing.")
            if talk.trace.stop_condition is None:
                await talk.turn("Do the second thing.")
        trace: AnyTrace = talk.trace
        return trace

    trace = await within_a_limit(limited, lambda trace: trace.num_turns == 2)
    assert (trace.ok, trace.stop_condition) == (True, "agent_timeout")
    record = trace.info["agent"]
    assert (record["segments"], record["exit_code"], record["outcome"]) == (2, None, None)
    assert record["session_id"].startswith("ses_")
