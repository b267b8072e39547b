"""The identity of a row: the same across runs, machines, row orders and file formats.

Invariant: the content hash covers what makes the task (question, pictures, and the columns that the table marks) and
nothing else, so that adding a column such as `avg_reward` or changing an instruction prompt leaves it as it was. Rows
that are equal in all of that are told apart by counting them.
"""

import hashlib
import json
from collections.abc import Sequence

import verifiers.v1 as vf

from opencode_env.taskset.columns import IDENTITY_FIELDS
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_env.taskset.prompt import Question
from opencode_env.taskset.row import Row


def content_key(question: Question, pictures: Sequence[vf.ImageUrlContentPart], data: OpenCodeTaskData) -> str:
    """Hash of a row's content, as 64 hexadecimal digits."""
    content = data.model_dump(mode="json", include=IDENTITY_FIELDS)
    asked = question.content
    content["question"] = asked if isinstance(asked, str) else [part.model_dump(mode="json") for part in asked]
    content["earlier"] = [message.model_dump(mode="json", exclude_none=True) for message in question.earlier]
    content["pictures"] = [hashlib.sha256(part.image_url.url.encode()).hexdigest() for part in pictures]
    present = {name: value for name, value in content.items() if value not in (None, [])}
    return hashlib.sha256(json.dumps(present, sort_keys=True).encode()).hexdigest()


class IdentityCheck:
    """Makes keys unique within one pass over a dataset."""

    def __init__(self) -> None:
        # Eight bytes per key keep a pass over millions of rows small; the chance that two of a million keys
        # collide is below 1 in 10 million.
        self._ids: set[int] = set()
        self._copies: dict[int, int] = {}

    def check_id(self, row: Row, key: str, row_id: str) -> None:
        """Raises `DatasetError` if an earlier row had the same id."""
        if (digest := _digest(row_id)) in self._ids:
            row.refuse(key, f"repeats the id {row_id!r} of an earlier row")
        self._ids.add(digest)

    def numbered(self, content: str) -> str:
        """`content` for its first row, `content-2` for the second equal row, and so on."""
        digest = _digest(content)
        if digest not in self._ids:
            self._ids.add(digest)
            return content
        copies = self._copies[digest] = self._copies.get(digest, 1) + 1
        return f"{content}-{copies}"


def _digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
