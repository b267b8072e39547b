"""What one segment says to OpenCode: the text, the pictures beside it, and the system text.

OpenCode takes a prompt as one user message. Texts of several user messages become its paragraphs; data-URL pictures
become attached files. A prior assistant or tool message has no place in it and is refused.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from verifiers.v1.clients import ModelContext
from verifiers.v1.types import ImageUrlContentPart, Message, MessageContent, SystemMessage, TextContentPart, UserMessage

from opencode_env.cli_agent.interception import reads_images

_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


@dataclass(frozen=True)
class Picture:
    """One image of the prompt as a file: name with the suffix OpenCode tells the type by, and bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class SegmentPrompt:
    """The user's side of one segment."""

    text: str
    pictures: tuple[Picture, ...] = ()
    system: str = ""
    """Text of system messages in the prompt; belongs behind the agent's own system prompt."""


def segment_prompt(prompt: str | Sequence[Message]) -> SegmentPrompt:
    """Split a task's prompt, or the user's next messages, into what OpenCode takes.

    Raises:
        ValueError: for an assistant or tool message, a picture that is not a data URL, or no content at all.
    """
    texts: list[str] = [prompt] if isinstance(prompt, str) else []
    system: list[str] = []
    pictures: list[Picture] = []
    for message in [] if isinstance(prompt, str) else prompt:
        if isinstance(message, SystemMessage):
            system.extend(_texts(message.content))
        elif isinstance(message, UserMessage):
            texts.extend(_texts(message.content))
            pictures.extend(_pictures(message.content, len(pictures)))
        else:
            raise ValueError(
                f"OpenCode cannot be handed a prior {message.role!r} message: give it user and system messages "
                "only, and play further user turns through agent.interaction()"
            )
    text = "\n\n".join(texts)
    if not text.strip():
        raise ValueError("the prompt holds no text: OpenCode needs some beside any picture")
    return SegmentPrompt(text, tuple(pictures), "\n\n".join(system))


def _texts(content: MessageContent) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part.text for part in content if isinstance(part, TextContentPart)]


def _pictures(content: MessageContent, count: int) -> list[Picture]:
    if isinstance(content, str):
        return []
    urls = [part.image_url.url for part in content if isinstance(part, ImageUrlContentPart)]
    return [_picture(url, count + index) for index, url in enumerate(urls, 1)]


def _picture(url: str, number: int) -> Picture:
    head, comma, body = url.partition(",")
    mime = head.removeprefix("data:").removesuffix(";base64")
    if not comma or not head.startswith("data:") or mime not in _SUFFIXES:
        raise ValueError(
            f"picture {number} of the prompt is {url[:40]!r}…: OpenCode takes base64 data URLs of type "
            f"{', '.join(sorted(_SUFFIXES))}"
        )
    try:
        return Picture(f"image-{number}.{_SUFFIXES[mime]}", base64.b64decode(body, validate=True))
    except binascii.Error as error:
        raise ValueError(f"picture {number} of the prompt is not valid base64: {error}") from error


async def shows_images(chosen: bool | None, models: Sequence[ModelContext], first: SegmentPrompt | None) -> bool:
    """Whether the models of the agent and of its sub calls are shown images: as the option `images` has `chosen`; None
    = as a training client's renderer can, and else where the task's prompt, `first`, begins with a picture."""
    able = {await reads_images(ctx) for ctx in models}
    if False in able or chosen is not None:
        return bool(chosen) and False not in able
    return None not in able or bool(first and first.pictures)
