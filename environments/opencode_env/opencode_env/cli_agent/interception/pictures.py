"""Pictures that an agent puts into its conversation: those that cannot be read are replaced by a text.

An endpoint refuses a request that holds one, and a policy that could have it refused could end its rollout without a
score. What stands before the first answer comes from the task and goes on as it is. Invariant: the same picture is
replaced in every request or in none, so that the conversation stays one.
"""

import base64
import hashlib
import io
from collections.abc import Iterator
from typing import Any

from PIL import Image

REPLACED = "messages[].content[] (a picture that cannot be read)"
"""What the trace calls it."""

_TEXT = "[This picture cannot be read: it is broken, too large, or not what its name says.]"
_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
"""The formats that endpoints take."""
_MOST_PIXELS = 1 << 24
_PIXELS_AT_ONCE = 1 << 26
"""Pixels of new pictures in one request; a few kilobytes can hold very many."""


class PictureCheck:
    """What is known of one rollout's pictures."""

    def __init__(self) -> None:
        self._readable: dict[bytes, bool] = {}

    def replace_broken(self, body: dict[str, Any]) -> bool:
        """Replace what cannot be read in a chat request's body (blocking); whether there was any."""
        found = list(_pictures(body.get("messages")))
        pixels = 0
        for content, position, url in found:
            digest = hashlib.sha256(url.encode(errors="replace")).digest()
            if digest not in self._readable:
                size = _pixels_if_readable(url, _PIXELS_AT_ONCE - pixels)
                pixels += size or 0
                self._readable[digest] = size is not None
            if not self._readable[digest]:
                content[position] = {"type": "text", "text": _TEXT}
        return any(content[position].get("text") == _TEXT for content, position, _ in found)


def holds_pictures(body: dict[str, Any]) -> bool:
    """Whether there is anything to look at."""
    return next(_pictures(body.get("messages")), None) is not None


def _pictures(messages: Any) -> Iterator[tuple[list[Any], int, str]]:
    """The pictures after the first answer: the list that holds each, its place there, and its data URL."""
    answered = False
    for message in messages if isinstance(messages, list) else ():
        answered |= message.get("role") == "assistant"
        content = message.get("content")
        for position, part in enumerate(content) if answered and isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "image_url":
                image = part.get("image_url")
                url = image.get("url") if isinstance(image, dict) else image
                if isinstance(url, str) and url.startswith("data:"):
                    yield content, position, url


def _pixels_if_readable(url: str, most: int) -> int | None:
    """How many pixels a picture has, None if it is not one that an endpoint could read, or has more than `most`."""
    head, _, payload = url.partition(",")
    kind = head.removeprefix("data:").partition(";")[0].lower().replace("image/jpg", "image/jpeg")
    try:
        data = base64.b64decode(payload, validate=True)
        with Image.open(io.BytesIO(data), formats=[*_TYPES]) as image:
            pixels = image.width * image.height
            if not head.endswith(";base64") or _TYPES.get(image.format or "") != kind:
                return None
            if pixels > min(most, _MOST_PIXELS):
                return None
            image.load()
            return pixels
    except Exception:  # noqa: BLE001 - decoders fail on broken data with whatever error it leads them to
        return None
