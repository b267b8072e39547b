"""Turns a row's question into the prompt: instructions around it, pictures after it.

Invariant: the instructions and pictures go to the user's last message, which is the question; earlier messages
stay as they are. A system message at the head of the list becomes the system prompt. Only pictures that are in the row
itself are used; a path in a row is never opened.
"""

import base64
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import verifiers.v1 as vf
from opencode_rubrics.code_problem import literal
from pydantic import TypeAdapter, ValidationError

from opencode_env.taskset.errors import nearest_name
from opencode_env.taskset.row import ABSENT, Row, given_fields

_MESSAGES: TypeAdapter[vf.Messages] = TypeAdapter(vf.Messages)
_SIGNATURES = (
    (re.compile(b"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(b"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(b"GIF8"), "image/gif"),
    (re.compile(b"BM"), "image/bmp"),
    (re.compile(b"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)


@dataclass(frozen=True)
class Question:
    """A question as the row has it: the user's last message, and what comes before it."""

    content: vf.MessageContent
    earlier: tuple[vf.Message, ...] = ()
    system_prompt: str | None = None

    def shows(self, options: Mapping[str, str]) -> bool:
        """Whether each option stands in the question behind its letter."""
        parts = (
            [self.content] if isinstance(self.content, str) else [getattr(part, "text", "") for part in self.content]
        )
        asked = "\n".join(parts)
        return all(re.search(rf"{re.escape(a)}\s*[).:]\s*{re.escape(text)}", asked) for a, text in options.items())

    def prompt(self, before: str, after: str, pictures: list[vf.ImageUrlContentPart]) -> str | vf.Messages:
        """The prompt with `before` and `after` around the question; plain text if it is nothing more."""
        content = _surrounded(self.content, before, after)
        if pictures:
            parts = [vf.TextContentPart(text=content)] if isinstance(content, str) else content
            content = [*parts, *pictures]
        if isinstance(content, str) and not self.earlier:
            return content
        return [*self.earlier, vf.UserMessage(content=content)]


def read_question(row: Row, key: str) -> Question:
    """The question in column `key`: text, or a list of messages.

    Raises:
        DatasetError: it is missing, empty, of another type, or a list that does not end with the user.
    """
    if row.get(key) is ABSENT:
        row.refuse(key, f"is missing; {nearest_name(key, row.values)}")
    value = row.cell(key)
    if value is None or (isinstance(value, str) and not value.strip()):
        row.refuse(key, "is empty")
    if isinstance(value, str):
        return Question(value)
    if not isinstance(value, list):
        row.refuse(key, f"must be text or a list of messages, not {type(value).__name__}")
    return _from_messages(row, key, value)


def _from_messages(row: Row, key: str, value: list[object]) -> Question:
    try:
        messages = _MESSAGES.validate_python([given_fields(entry) for entry in value])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        row.refuse(key, f"is not a list of {{role, content}} messages: message {where}: {first['msg']}")
    system_prompt = None
    if messages and isinstance(messages[0], vf.SystemMessage):
        head = messages.pop(0)
        system_prompt = head.content if isinstance(head.content, str) else None
        if not system_prompt:
            row.refuse(key, "opens with a system message that is not plain text")
    if not messages or not isinstance(messages[-1], vf.UserMessage):
        row.refuse(key, "must end with a message of the user: the question")
    *earlier, last = messages
    assert isinstance(last, vf.UserMessage)
    return Question(last.content, tuple(earlier), system_prompt)


def _surrounded(content: vf.MessageContent, before: str, after: str) -> vf.MessageContent:
    if isinstance(content, str):
        return f"{before}{content}{after}"
    head = [vf.TextContentPart(text=before)] if before else []
    tail = [vf.TextContentPart(text=after)] if after else []
    return [*head, *content, *tail]


def read_options(row: Row, key: str) -> dict[str, str] | None:
    """The options of a multiple-choice question by their letters: a list of texts, a table by letter or of the lists
    `label` and `text`, or the text of one of them; by convention also in a column `choices` or in columns of their own.

    Raises:
        DatasetError: the column that was asked for by another name holds none.
    """
    for value in (row.get(key), *((row.get("choices"), [*_own_columns(row).values()]) if key == "options" else ())):
        written = isinstance(value, str) and value.lstrip()[:1] in ("[", "{")
        found = literal(str(value)) if written else given_fields(value)
        if (options := _by_letter(found)) is not None:
            return options
    if key != "options" and row.cell(key) is not None:
        row.refuse(key, "must be the options of a question: a list of at least two texts, or a table of them by letter")
    return None


_OWN_COLUMN = re.compile(
    r"((?i:op|opt|option|choice|answer|ending|solution|sol|alternative)[ _-]?|)([A-Z]|\d|(?<=.)[a-z])"
)


def _own_columns(row: Row) -> dict[str, object]:
    """Options in columns of their own, such as `A`, `opa` or `option_1`, by the letter or number of the column."""
    groups: dict[str, dict[str, object]] = {}
    for name, value in row.values.items():
        if value not in (None, "") and (found := _OWN_COLUMN.fullmatch(name)) and (found[1] or found[2].isalpha()):
            groups.setdefault(found[1].lower(), {})[found[2].upper()] = value
    for group in groups.values():
        names = "".join(sorted(group))
        if any(series.startswith(names) for series in (string.ascii_uppercase, string.digits, string.digits[1:])):
            return {name: group[name] for name in names}
    return {}


def _by_letter(found: object) -> dict[str, str] | None:
    if isinstance(found, Mapping) and isinstance(found.get("label"), list) and isinstance(found.get("text"), list):
        found = dict(zip(map(str, found["label"]), found["text"], strict=False))
    elif isinstance(found, Mapping):
        letters = string.ascii_uppercase[: len(found)]
        found = {letter: found[letter] for letter in letters} if found.keys() == {*letters} else None
    elif isinstance(found, list) and len(found) <= len(string.ascii_uppercase):
        found = dict(zip(string.ascii_uppercase, found, strict=False))
    if not isinstance(found, Mapping) or len(found) < 2:
        return None
    if not all(isinstance(text, str | int | float) and str(text).strip() for text in found.values()):
        return None
    texts = {letter: str(text).strip() for letter, text in found.items()}
    bare = {letter: re.sub(rf"^\(?{re.escape(letter)}[).:]\s*", "", text) for letter, text in texts.items()}
    return bare if all(0 < len(bare[letter]) < len(text) for letter, text in texts.items()) else texts


def chosen_letter(row: Row, key: str, answer: str, options: Mapping[str, str], *, must: bool) -> str | None:
    """The letter of the right option, which column `key` names, by the option's own column too, or says as text, or
    counts from 0; None if it does none of this.

    Raises:
        DatasetError: it fits several options; or none, but must, or seems to name one.
    """
    said = answer.strip()
    found = {a for a, text in options.items() if said in (a, text, f"({a})", f"{a}. {text}", f"({a}) {text}")}
    own = _own_columns(row)
    if said.upper() in own and _by_letter([*own.values()]) == options:
        found.add([*options][[*own].index(said.upper())])
    if not found and isinstance(row.get(key), int | float) and said in map(str, range(len(options))):
        found = {[*options][int(said)]}
    if len(found) == 1:
        return found.pop()
    if found or must or re.fullmatch("-?.", said):  # -1: the answer is kept back
        row.refuse(
            key, f"is {answer!r}, which fits {'several' if found else 'none'} of the options {', '.join(options)}"
        )
    return None


def container_image(row: Row, key: str) -> str | None:
    """The name of the sandbox's container image, if the cell holds text."""
    value = row.cell(key)
    return value if isinstance(value, str) else None


def pictures(row: Row, key: str) -> list[vf.ImageUrlContentPart]:
    """The pictures in the cell, in order; none if it is empty, absent or text.

    Raises:
        DatasetError: a picture has no data in the row, or is not a PNG, JPEG, GIF, WebP or BMP.
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
    mime_type = next((mime_type for signature, mime_type in _SIGNATURES if signature.match(data)), None)
    if mime_type is None:
        row.refuse(key, "holds a picture that is not a PNG, JPEG, GIF, WebP or BMP")
    url = f"data:{mime_type};base64,{base64.b64encode(data).decode('ascii')}"
    return vf.ImageUrlContentPart(image_url=vf.ImageUrlSource(url=url))
