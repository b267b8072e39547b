"""A model is shown pictures where it takes them; else it is told that it gets none, and its endpoint is sent none."""

import base64
import json

import pytest
from opencode_env.scripted_model import ChatRequest, Reply
from verifiers.v1.types import Message

from tests.opencode.test_conversation import PICTURE, message, png
from tests.support.places import Place
from tests.support.replies import bash, call, fault
from tests.support.rollouts import conversation, play

pytestmark = pytest.mark.opencode

DRAW = bash(f"echo {base64.b64encode(png()).decode()} | base64 -d >/app/pixel.png; cp /app/pixel.png /app/plain.txt")
READS = [call("read", filePath="/app/pixel.png"), call("read", filePath="/app/plain.txt")]


def text_only(request: ChatRequest) -> Reply:
    """An endpoint that refuses any request with a picture in it, and a model that draws one and reads it."""
    if "image_url" in request.body.model_dump_json():
        return Reply(faults=fault("status", status=400))
    replies = [DRAW, *READS, Reply(text="Done.")]
    return replies[sum(said.role == "assistant" for said in request.body.messages)]


async def test_a_picture_that_is_read_goes_to_no_endpoint_that_does_not_say_that_it_takes_any(confined: Place) -> None:
    played = await play(confined, text_only)
    assert played.trace.ok, played.trace.errors
    last = json.dumps(played.requests[-1].body["messages"])
    assert "image_url" not in last
    assert "does not support image input" in last
    assert (played.trace.num_branches, played.scored) == (1, True)


@pytest.mark.parametrize("images", [None, False])
async def test_a_users_picture_that_the_model_would_not_see_is_refused_with_what_to_set(
    confined: Place, images: bool | None
) -> None:
    shown: list[Message] = [message("Look.", PICTURE)]
    async with conversation(confined, [Reply(text="Seen.")], harness={"images": images}) as (talk, model):
        await talk.turn(shown)
    assert talk.trace.last_error.type == "HarnessError"
    assert "--env.agent.harness.images true" in talk.trace.last_error.message
    assert model.requests == []
