"""What an agent can make of pictures: none that it puts into its conversation makes an endpoint refuse a request."""

import base64
import io
import json
from typing import Any

import pytest
from opencode_env.cli_agent.interception import role_interception
from opencode_env.scripted_model import Reply
from PIL import Image
from verifiers.v1.interception import InterceptionServerConfig

from tests.rlm.role_server import role_server
from tests.support.places import Confined
from tests.support.replies import bash, call
from tests.support.rollouts import play


def encoded(kind: str = "PNG", size: tuple[int, int] = (40, 30)) -> bytes:
    made = io.BytesIO()
    Image.linear_gradient("L").resize(size).save(made, kind)
    return made.getvalue()


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


PNG = encoded()
SOUND = {
    "png": url(PNG),
    "jpeg": url(encoded("JPEG"), "image/jpeg"),
    "jpg": url(encoded("JPEG"), "image/jpg"),
    "gif": url(encoded("GIF"), "image/gif"),
    "webp": url(encoded("WEBP"), "image/webp"),
}
BROKEN = {
    "no picture": url(b"#!/bin/sh\n"),
    "nothing": url(b""),
    "head alone": url(PNG[:60]),
    "cut off": url(PNG[:-40]),
    "one byte changed": url(PNG[: len(PNG) // 2] + bytes([PNG[len(PNG) // 2] ^ 255]) + PNG[len(PNG) // 2 + 1 :]),
    "another kind than it says": url(encoded("JPEG")),
    "a kind that no endpoint reads": url(encoded("BMP"), "image/bmp"),
    "drawing": url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
    "no base64": "data:image/png;base64,not base64!",
    "not encoded": "data:image/png,abc",
    "bomb": url(encoded(size=(5000, 5000))),
}


def conversation(*urls: str) -> list[dict[str, Any]]:
    """A chat in which the agent has read these pictures, after one of the task's that nobody can read."""
    parts = [{"type": "image_url", "image_url": {"url": one}} for one in urls]
    given = {"type": "image_url", "image_url": {"url": url(b"of the task")}}
    return [
        {"role": "user", "content": [{"type": "text", "text": "look"}, given]},
        {"role": "assistant", "content": "I read it."},
        {"role": "user", "content": [{"type": "text", "text": "here"}, *parts]},
    ]


async def arrived(*urls: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages that reach the endpoint, sent twice, and what the trace says about it."""
    async with role_server() as server, server.rollout() as rollout:
        for _ in range(2):
            body = json.dumps({"model": "m", "messages": conversation(*urls)}).encode()
            assert (await rollout.post(body)).status == 200
        first, second = (request.body["messages"] for request in server.model.requests)
        assert first == second
        return first, rollout.main.info.get("gateway", {})


@pytest.mark.parametrize("name", SOUND)
async def test_a_sound_picture_arrives(name: str) -> None:
    messages, record = await arrived(SOUND[name])
    assert messages == conversation(SOUND[name])
    assert "dropped" not in record


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_picture_arrives_as_a_text_and_is_recorded(name: str) -> None:
    messages, record = await arrived(BROKEN[name], SOUND["png"])
    assert messages[:2] == conversation()[:2]
    _, replaced, kept = messages[2]["content"]
    assert replaced["type"] == "text"
    assert "cannot be read" in replaced["text"]
    assert kept == {"type": "image_url", "image_url": {"url": SOUND["png"]}}
    assert record["dropped"] == {"messages[].content[] (a picture that cannot be read)": 2}


async def test_pictures_of_very_many_pixels_are_not_all_looked_at() -> None:
    large = [url(encoded(size=(4000, 4000 + number))) for number in range(6)]
    messages, record = await arrived(*large)
    kinds = [part["type"] for part in messages[2]["content"][1:]]
    assert kinds == ["image_url"] * 4 + ["text"] * 2
    assert record["dropped"]


@pytest.mark.opencode
@pytest.mark.slow
async def test_an_agent_that_makes_and_reads_a_broken_picture_is_scored() -> None:
    make = f"printf %s {base64.b64encode(PNG).decode()} | base64 -d >/app/sound.png; head -c 61 sound.png >broken.png"
    reads = [call("read", filePath=f"/app/{name}.png") for name in ("broken", "sound")]
    async with role_interception(InterceptionServerConfig()) as server:
        played = await play(Confined(), [bash(make), *reads, Reply(text="done")], interception=server)
    assert played.trace.ok, played.trace.errors
    sent = [json.dumps(request.body) for request in played.requests]
    assert [SOUND["png"] in body for body in sent] == [False, False, False, True]
    assert not any(url(PNG[:61]) in body for body in sent)
    assert "This picture cannot be read" in sent[-1]
    assert played.trace.info["gateway"]["dropped"] == {"messages[].content[] (a picture that cannot be read)": 2}
    assert "history" not in played.trace.info
