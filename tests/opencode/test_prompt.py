"""How a task's prompt becomes what OpenCode takes: one text, pictures as files, system text apart."""

import base64

import pytest
import verifiers.v1 as vf
from hypothesis import given
from hypothesis import strategies as st
from opencode_env.agents.opencode.state import Picture, segment_prompt, shows_images
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import ModelContext
from verifiers.v1.types import (
    AssistantMessage,
    ImageUrlContentPart,
    ImageUrlSource,
    Message,
    SystemMessage,
    TextContentPart,
    ToolMessage,
    UserMessage,
)

PNG = base64.b64encode(b"not really a picture").decode()


def picture(url: str) -> ImageUrlContentPart:
    return ImageUrlContentPart(image_url=ImageUrlSource(url=url))


@given(st.text(min_size=1).filter(str.strip))
def test_a_text_stays_as_it_is(text: str) -> None:
    assert segment_prompt(text).text == text
    assert segment_prompt([UserMessage(content=text)]).text == text


def test_user_messages_become_paragraphs_and_system_messages_stay_apart() -> None:
    parts = [TextContentPart(text=text) for text in ("Two.", "Three.")]
    brief, kind = SystemMessage(content="Be brief."), SystemMessage(content="Be kind.")
    prompt = segment_prompt([brief, UserMessage(content="One."), kind, UserMessage(content=parts)])
    assert (prompt.text, prompt.system) == ("One.\n\nTwo.\n\nThree.", "Be brief.\n\nBe kind.")


def test_pictures_are_numbered_through_all_messages() -> None:
    png, jpeg, webp = (picture(f"data:image/{kind};base64,{PNG}") for kind in ("png", "jpeg", "webp"))
    first = UserMessage(content=[TextContentPart(text="Look."), png])
    prompt = segment_prompt([first, UserMessage(content=[jpeg, webp])])
    names = ("image-1.png", "image-2.jpg", "image-3.webp")
    assert prompt.pictures == tuple(Picture(name, b"not really a picture") for name in names)


@pytest.mark.parametrize(
    "url",
    [
        *("/etc/passwd", "file:///etc/passwd", "http://host/picture.png", "data:text/plain;base64,aGk="),
        *("data:image/png;base64", "data:image/svg+xml;base64,aGk=", "data:image/png;base64,not base64!"),
    ],
)
def test_a_picture_that_is_no_base64_data_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="picture 1 of the prompt"):
        segment_prompt([UserMessage(content=[TextContentPart(text="Look."), picture(url)])])


@pytest.mark.parametrize("message", [AssistantMessage(content="a"), ToolMessage(tool_call_id="1", content="a")])
def test_a_prior_answer_is_refused_with_the_way_to_play_it(message: Message) -> None:
    with pytest.raises(ValueError, match=r"agent\.interaction"):
        segment_prompt([UserMessage(content="Hello."), message])


@pytest.mark.parametrize("prompt", ["", " \n", [SystemMessage(content="Only this.")]])
def test_a_prompt_without_text_is_refused(prompt: str | list[Message]) -> None:
    with pytest.raises(ValueError, match="holds no text"):
        segment_prompt(prompt)


@pytest.mark.parametrize(
    ("chosen", "begins_with_one", "shown"),
    [(None, True, True), (None, False, False), (False, True, False), (True, False, True)],
)
async def test_an_endpoints_model_is_shown_pictures_as_the_option_says_or_else_the_task(
    chosen: bool | None, begins_with_one: bool, shown: bool
) -> None:
    ctx = ModelContext(model="m", client=vf.EvalClientConfig(), sampling=SamplingConfig())
    parts = [picture(f"data:image/png;base64,{PNG}")] * begins_with_one
    first = segment_prompt([UserMessage(content=[TextContentPart(text="Look."), *parts])])
    assert await shows_images(chosen, [ctx], first) is shown
