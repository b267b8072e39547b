"""A picture that an agent broke does not reach the endpoint, which would refuse the request and so end the rollout."""

import base64
import json

import pytest
from opencode_env.scripted_model import Reply

from tests.opencode.test_conversation import png
from tests.support.places import Confined
from tests.support.replies import bash, call
from tests.support.rollouts import play

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

PICTURE = png()
BROKEN = {
    "cut.png": PICTURE[:40],
    "changed.png": PICTURE[:45] + b"\0\0\0" + PICTURE[48:],
    "head.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xd9",
    "text.gif": b"GIF89a and more",
}


async def test_a_broken_picture_stays_with_the_agent_and_a_sound_one_is_sent_as_what_it_is() -> None:
    files = {**BROKEN, "sound.webp": PICTURE}
    make = [f"echo {base64.b64encode(data).decode()} | base64 -d >/app/{name}" for name, data in files.items()]
    reads = [call("read", filePath=f"/app/{name}") for name in files]
    played = await play(Confined(), [bash("; ".join(make)), *reads, Reply(text="done")], harness={"images": True})
    assert played.trace.ok, played.trace.errors
    messages = played.requests[-1].body["messages"]
    shown = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    pictures = [part["image_url"]["url"] for part in shown if part["type"] == "image_url"]
    assert pictures == [f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"]
    assert json.dumps(messages).count("image omitted") + json.dumps(messages).count("Cannot read") >= 1
