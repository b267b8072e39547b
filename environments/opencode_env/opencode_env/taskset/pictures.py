"""Pictures of a row, as message parts with the data in them.

Invariant: only data that is in the row itself is used; a path in a row is never opened.
"""

import base64
from collections.abc import Mapping, Sequence

import verifiers.v1 as vf

from opencode_env.taskset.row import Row

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


def container_image(row: Row, key: str) -> str | None:
    """The name of the sandbox's container image, if the cell holds text."""
    value = row.cell(key)
    return value if isinstance(value, str) else None


def pictures(row: Row, key: str) -> list[vf.ImageUrlContentPart]:
    """The pictures in the cell, in order; none if it is empty, absent or text.

    Raises:
        DatasetError: A picture has no data in the row, or is no PNG, JPEG, GIF, WebP or BMP.
    """
    value = row.cell(key)
    if value is None or isinstance(value, str):
        return []
    items = value if isinstance(value, Sequence) and not isinstance(value, bytes) else [value]
    return [_part(row, key, item) for item in items]


def _part(row: Row, key: str, item: object) -> vf.ImageUrlContentPart:
    data = item.get("bytes") if isinstance(item, Mapping) else item
    if not isinstance(data, bytes) or not data:
        row.refuse(key, "must be the name of a container image, or pictures with their bytes in the row")
    url = f"data:{_mime_type(row, key, data)};base64,{base64.b64encode(data).decode('ascii')}"
    return vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url=url))


def _mime_type(row: Row, key: str, data: bytes) -> str:
    for signature, mime_type in _SIGNATURES:
        if data.startswith(signature):
            return mime_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    row.refuse(key, "holds a picture that is no PNG, JPEG, GIF, WebP or BMP")
