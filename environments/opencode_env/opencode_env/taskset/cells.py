"""Checks and converts single cells of a row.

Every function takes a row and the name of a column, and either returns the wanted type (nothing for an empty cell) or
raises `DatasetError` with file, row and column.
"""

import base64
import json
import math
import re
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import verifiers.v1 as vf
from opencode_rubrics import AnyRubricConfig, CodeTests, RubricConfig, SweProblem
from opencode_rubrics.code_problem import literal, read_code_tests
from pydantic import JsonValue, TypeAdapter, ValidationError
from rollout_sandbox.surrogates import whole_text

from opencode_env.taskset.row import ABSENT, Row, given_fields, nearest_name

RUBRIC_COLUMN = "rubric"
_OPERATORS = "judge_client"
"""The option that only the user's own configuration may set."""
_ADAPTER: TypeAdapter[RubricConfig] = TypeAdapter(AnyRubricConfig)
# Beyond this, neighbouring whole numbers are the same float.
_EXACT_FLOATS = 2.0**53


def text(row: Row, key: str) -> str | None:
    value = row.cell(key)
    if value is None or isinstance(value, str):
        return value
    row.refuse(key, f"must be text, not {_kind(value)}")


def scalar_text(row: Row, key: str) -> str | None:
    """A text or number cell as text. 7.0 becomes "7": a table with gaps makes floats of whole numbers, and that is
    not another answer."""
    value = row.cell(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        row.refuse(key, f"must be text or a number, not {_kind(value)}")
    if isinstance(value, float):
        if math.isinf(value):
            row.refuse(key, f"must be text or a finite number, not {value}")
        if value.is_integer() and abs(value) < _EXACT_FLOATS:
            return str(int(value))
    return str(value)


def identifier(row: Row, key: str) -> str | None:
    value = row.cell(key)
    if isinstance(value, float) and not value.is_integer():
        row.refuse(key, f"must be text or a whole number, not {value}")
    return scalar_text(row, key)


def commands(row: Row, key: str) -> list[str]:
    if (value := row.cell(key)) is None:
        return []
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Sequence) or isinstance(found, bytes):
        row.refuse(key, f"must be a shell command or a list of them, not {_kind(value)}")
    for position, command in enumerate(found, start=1):
        if not isinstance(command, str) or not command.strip():
            row.refuse(key, f"entry {position} must be a shell command, not {_kind(command)}")
    return list(found)


def absolute_path(row: Row, key: str) -> str | None:
    path = text(row, key)
    if path is not None and not path.startswith("/"):
        row.refuse(key, f"must be an absolute path, not {path!r}")
    return path


def seconds(row: Row, key: str) -> float | None:
    if (value := row.cell(key)) is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        row.refuse(key, f"must be a positive number of seconds, not {_kind(value)}")
    return float(value)


def agent_timeout(row: Row, key: str) -> vf.TaskTimeout:
    return vf.TaskTimeout(agent=seconds(row, key))


def code_tests(row: Row, key: str) -> CodeTests | None:
    """The tests of a programming problem, in any of the known forms, with those of the columns that belong to it."""
    if (value := row.cell(key)) is None:
        return None
    try:
        return read_code_tests({**row.values, key: value}, key)
    except (ValueError, RecursionError) as error:
        row.refuse(key, str(error) if isinstance(error, ValueError) else "is nested too deeply")


def swe_problem(row: Row, key: str) -> SweProblem | None:
    """A software engineering task in the row form of the rubric `swe-tests`, as a mapping or as JSON text."""
    value = row.cell(key)
    if value is None or isinstance(value, SweProblem):
        return value
    try:
        if isinstance(value, str):
            return SweProblem.model_validate_json(value)
        return SweProblem.model_validate(given_fields(value))
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_url=False))
        row.refuse(key, f"is not a software engineering task: {told}")


def own_rubric(row: Row) -> dict[str, JsonValue] | None:
    """The rubric's configuration in the row's column `rubric`, if that is one: a mapping with a `type`. Many datasets
    have a column of that name with a text for graders, which stays an ordinary column.

    A row chooses how it is scored, not whom this machine talks to: a dataset can come from anybody, and a judge's
    endpoint is sent the API key, or any other variable, that its configuration names.
    """
    value = row.values.get(RUBRIC_COLUMN)
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        return None
    given = {name: json_safe(field) for name, field in given_fields(value).items()}
    try:
        read_rubric(given)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}".removeprefix(": ") for e in error.errors())
        row.refuse(RUBRIC_COLUMN, f"is not a rubric configuration: {problems}: {json.dumps(given)[:200]}")
    if _names(given, _OPERATORS):
        row.refuse(RUBRIC_COLUMN, f"must not set {_OPERATORS}: set --env.taskset.task.rubric.{_OPERATORS} instead")
    return given


def _names(value: JsonValue, key: str) -> bool:
    if isinstance(value, dict):
        return any(name.replace("-", "_") == key or _names(inner, key) for name, inner in value.items())
    return isinstance(value, list) and any(_names(inner, key) for inner in value)


def read_rubric(config: Mapping[str, JsonValue]) -> RubricConfig:
    return _ADAPTER.validate_python(dict(config))


def asked_for(row: Row, tests: CodeTests | None) -> str:
    """Return what a solution must define for its tests, to stand before the question; empty for a program."""
    if tests is None or tests.function is None:
        return ""
    asked = f"Your solution must define the function `{tests.function}`.\n\n"
    starter = text(row, "starter_code")
    return f"{asked}It must complete this code:\n\n```python\n{starter}\n```\n\n" if starter else asked


def json_safe(value: object) -> JsonValue:
    """Any cell as JSON: NaN and infinities as null, bytes as base64, other types as their text, lone surrogates
    replaced."""
    if isinstance(value, str):
        return whole_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {whole_text(str(key)): json_safe(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [json_safe(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _kind(value: object) -> str:
    if isinstance(value, bool | int | float):
        return f"{type(value).__name__} {value}"
    if isinstance(value, str):
        return f"text {value[:60]!r}"
    return f"{type(value).__name__} {json.dumps(json_safe(value), ensure_ascii=False)[:60]}"


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
    """The question in column `key`: text, or a list of messages that ends with the user's."""
    if row.get(key) is ABSENT:
        row.refuse(key, f"is missing; {nearest_name(key, row.values)}")
    value = row.cell(key)
    if value is None or (isinstance(value, str) and not value.strip()):
        row.refuse(key, "is empty")
    if isinstance(value, str):
        return Question(value)
    if not isinstance(value, list):
        row.refuse(key, f"must be text or a list of messages, not {type(value).__name__}")
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
    `label` and `text`, or the text of one of them; by convention also in a column `choices` or in columns of their
    own."""
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
    counts from 0; None if it does none of this, unless it `must` or seems to name one."""
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
    """The pictures (PNG, JPEG, GIF, WebP or BMP) in the cell, in order; none if it is empty, absent or text."""
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
