"""Pictures of the user and of the agent: a model that takes some is shown sound ones, any other is refused the user's.

What the agent reads where its model takes none: `test_tools.py`.
"""

import base64
import json
import struct
import zlib
from typing import Any

import pytest
import pytest_asyncio
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.scripted_model import ChatRequest, Reply
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.types import ImageUrlContentPart, ImageUrlSource, SystemMessage, TextContentPart, UserMessage

from tests.opencode.test_broken_runs import assert_own
from tests.support.places import Confined, Place
from tests.support.replies import bash, call, faulty, python
from tests.support.rollouts import Played, conversation, play

pytestmark = [pytest.mark.opencode, pytest.mark.usefixtures("sandboxes")]


def png() -> bytes:
    """A picture of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")) + chunk(b"IEND", b"")


PIXEL = png()
PICTURE = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
NO_PICTURE = "data:image/png;base64,aGVsbG8="
FILES = {
    "cut.png": PIXEL[:40],
    "changed.png": PIXEL[:45] + b"\0\0\0" + PIXEL[48:],
    "head.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xd9",
    "text.gif": b"GIF89a and more",
    "sound.webp": PIXEL,
}
"""Broken pictures, and a sound one under another kind's name."""
PUT_INTO_STORE = f"""
import glob, json, os, sqlite3, time
(store,) = glob.glob(os.environ["OPENCODE_ENV_STATE"] + "/data/opencode/*.db")
connection = sqlite3.connect(store, timeout=60)
find = "select id, session_id from message where json_extract(data, '$.role') = 'user'"
((message, session),) = connection.execute(find).fetchall()
part = {{"type": "file", "mime": "image/png", "filename": "x.png", "url": "{NO_PICTURE}"}}
values = {{"id": "prt_zzz", "message_id": message, "session_id": session, "data": json.dumps(part)}}
for name in ("time_created", "time_updated"):
    values[name] = int(time.time() * 1000)
names = ", ".join(values)
connection.execute(f"insert into part ({{names}}) values ({{', '.join('?' * len(values))}})", list(values.values()))
connection.commit()
"""


def message(text: str, *pictures: str) -> UserMessage:
    """What a user says and shows."""
    images = [ImageUrlContentPart(image_url=ImageUrlSource(url=url)) for url in pictures]
    return UserMessage(content=[TextContentPart(text=text), *images])


def urls(content: Any) -> list[str]:
    """Of the pictures in a message."""
    parts = [] if isinstance(content, str) else content
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def texts(content: Any) -> str:
    """What a message says."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return "".join(part["text"] for part in parts if part["type"] == "text")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown() -> Played:
    """A rollout whose user shows a picture, and whose agent reads some and puts a broken one into OpenCode's store."""
    make = [f"echo {base64.b64encode(data).decode()} | base64 -d >/app/{name}" for name, data in FILES.items()]
    reads = [call("read", filePath=f"/app/{name}") for name in FILES]
    turns = [bash("; ".join(make)), *reads, python(PUT_INTO_STORE)]

    def policy(request: ChatRequest) -> Reply:
        if NO_PICTURE in request.body.model_dump_json():
            return faulty("status", status=400, body="the picture cannot be read")
        return turns[request.turn]

    prompt = [SystemMessage(content="Be brief."), message("Look at this.", PICTURE), UserMessage(content="And answer.")]
    async with role_interception(InterceptionServerConfig()) as server:
        return await play(Confined(), policy, interception=server, harness={"images": True}, prompt=prompt)


def test_messages_become_one_prompt_with_their_pictures_and_system_text(shown: Played) -> None:
    system, user = shown.requests[0].body["messages"]
    assert system["content"].endswith("\nBe brief.")
    assert "Look at this.\n\nAnd answer." in texts(user["content"])
    assert (urls(user["content"]), shown.trace.num_branches) == ([PICTURE], 1)


def test_a_broken_picture_stays_with_the_agent_and_a_sound_one_is_sent_as_what_it_is(shown: Played) -> None:
    _, _, *read = shown.requests[-2].body["messages"]
    assert [url for one in read for url in urls(one["content"])] == [PICTURE]
    assert json.dumps(read).count("image omitted") + json.dumps(read).count("Cannot read") >= 1


def test_a_broken_picture_that_the_agent_has_put_into_opencodes_store_is_its_own_doing(shown: Played) -> None:
    assert [one.error.status_code for one in shown.trace.calls if one.error] == [400]
    assert_own(shown, "the picture cannot be read")


@pytest.mark.parametrize("images", [None, False])
async def test_a_users_picture_that_the_model_would_not_see_is_refused_with_what_to_set(
    confined: Place, images: bool | None
) -> None:
    async with conversation(confined, [Reply(text="Seen.")], harness={"images": images}) as (talk, model):
        await talk.turn([message("Look.", PICTURE)])
    assert talk.trace.last_error.type == "HarnessError"
    assert "--env.agent.harness.images true" in talk.trace.last_error.message
    assert model.requests == []


async def test_a_prompt_that_opencode_cannot_take_is_refused_before_it_starts(confined: Place) -> None:
    played = await play(confined, Reply(text="Done."), prompt=[message("Look.", "http://127.0.0.1/picture.png")])
    assert not played.trace.ok
    assert "OpenCode takes base64 data URLs" in played.error
    assert played.requests == []
