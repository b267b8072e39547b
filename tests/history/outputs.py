"""What a model may say, generated: calls in every spelling, calls that cannot run, odd ids, orders and ends."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from opencode_env.scripted_model import Reply, ToolCall

TOKEN = "@word@"
"""Stands for a word of its own in every call that runs."""

_NUMBERS = ["5000.0", "5e3", "59999", "6.0E4", "1e4"]
_ODD_VALUES = [
    *["1e400", "-1e400", "-0", "-0.0", "12345678901234567890", "0.1", "1.50", "123e-7", "9007199254740993", "1e21"],
    *["null", "true", "[]", "{}", '[1, {"a": 2.0}]', '"\\u00e9\\/\\n"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\u2028"'],
]
_ODD_KEYS = ['"x"', '"1"', '"10"', '"\\u0078"', '"constructor"', '"a b"', '""']
_BROKEN = [
    *["", " ", "null", "true", "5", "[1]", '"x"', "[]", "{", "{}}", "not JSON", "{'command': 1}"],
    *['{"command": NaN}', '{"command": "a\nb"}', '{"command": "a",}', '{"__proto__": {"a": 1}, "command": "echo no"}'],
    *['{"a": {"constructor": {"prototype": 1}}}', '{"a":' + "[" * 400 + "]" * 400 + "}", "\ufeff{}"],
]
_NAMES = ["nothing", " bash ", "invalid", "ba sh", "bash.run", "Nothing"]

_space = st.sampled_from(["", "", " ", "\n", "\t ", " \r\n "])


def _spelled(text: str, escaped: bool) -> str:
    """A JSON string with some letters escaped."""
    quoted = json.dumps(text)
    return quoted.replace("echo", "\\u0065cho").replace("/", "\\/") if escaped else quoted


@st.composite
def runnable(draw: Any) -> str:
    """Arguments with which the tool `bash` prints the token, spelled as no serialiser would."""
    members = [
        ('"command"', _spelled(f"echo {TOKEN}", draw(st.booleans()))),
        ('"description"', _spelled(draw(st.sampled_from(["a", "é\u2028", "\U0001f600/"])), draw(st.booleans()))),
    ]
    if draw(st.booleans()):
        members.append(('"timeout"', draw(st.sampled_from(_NUMBERS))))
    odd = st.tuples(st.sampled_from(_ODD_KEYS), st.sampled_from(_ODD_VALUES))
    members += draw(st.lists(odd, max_size=2))
    members = list(draw(st.permutations(members)))
    if draw(st.booleans()):
        members.insert(0, ('"command"', '"echo first of two"'))
    gap: list[str] = [draw(_space) for _ in range(4)]
    between = f"{gap[0]},{gap[1]}"
    spelled = between.join(f"{key}{gap[3]}:{gap[1]}{value}" for key, value in members)
    return f"{{{gap[2]}{spelled}{gap[0]}}}"


@st.composite
def call(draw: Any, identity: str | None = None) -> ToolCall:
    """One call, which runs or does not."""
    kind = draw(st.sampled_from(["runs", "runs", "runs", "cased", "broken", "cut", "unknown"]))
    arguments = draw(runnable())
    name = "bash"
    if kind == "cased":
        name = draw(st.sampled_from(["Bash", "BASH"]))
    elif kind == "broken":
        arguments, name = draw(st.sampled_from(_BROKEN)), draw(st.sampled_from(["bash", "bash", "Bash"]))
    elif kind == "cut":
        arguments = arguments[: draw(st.integers(1, max(1, len(arguments) - 2)))].replace(TOKEN, "cut")
    elif kind == "unknown":
        name = draw(st.sampled_from(_NAMES))
        arguments = arguments.replace(TOKEN, "unknown")
    return ToolCall(name=name, arguments=arguments, id=identity)


_texts = st.sampled_from(["", "", "Said.", " \n", "<think>no</think>", "\u2028\x00é\U0001f600", "{}", "a" * 300])
_reasoning = st.sampled_from(["", "", "Thought.", " ", "</think>", "é\n\n"])
_keys = st.sampled_from(["reasoning_content", "reasoning"])


@st.composite
def turn(draw: Any) -> Reply:
    """An answer with calls, after which the agent goes on."""
    count = draw(st.sampled_from([1, 1, 1, 2, 3]))
    style = draw(st.sampled_from(["own", "own", "same", "empty", "odd"]))
    ids: dict[str, list[str | None]] = {
        "own": [None] * count,
        "same": ["call_same"] * count,
        "empty": ["", *[None] * (count - 1)],
    }
    odd: list[str | None] = [f"a:b/{'x' * 30}-{number}" for number in range(count)]
    given = ids.get(style, odd)
    calls = tuple(draw(call(identity)) for identity in given)
    arrivals = tuple(draw(st.permutations(range(count)))) if draw(st.booleans()) else None
    return Reply(
        text=draw(_texts),
        reasoning=draw(_reasoning),
        reasoning_key=draw(_keys),
        tool_calls=calls,
        arrivals=arrivals,
        finish_reason=draw(st.sampled_from([None, None, "stop", "length"])),
    )


ends = st.builds(
    Reply,
    text=st.sampled_from(["Done.", "", "", " ", "é"]),
    reasoning=st.sampled_from(["", "", "Thought."]),
    finish_reason=st.sampled_from([None, "length"]),
)
"""Answers with which the agent ends and the user goes on."""


@dataclass(frozen=True)
class Conversation:
    """What the model says, segment by segment, and into how many pieces a stream is cut."""

    segments: tuple[tuple[Reply, ...], ...]
    pieces: int

    def with_words(self) -> "Conversation":
        """The same with a word of its own in every call that runs."""
        return Conversation(_with_words(self.segments, "w"), self.pieces)


def _with_words(segments: Any, mark: str) -> Any:
    numbers = iter(range(10_000))

    def worded(one: ToolCall) -> ToolCall:
        return one.model_copy(update={"arguments": one.arguments_json.replace(TOKEN, f"{mark}{next(numbers)}word")})

    return tuple(
        tuple(reply.model_copy(update={"tool_calls": tuple(map(worded, reply.tool_calls))}) for reply in segment)
        for segment in segments
    )


def words(replies: Any) -> list[str]:
    """The words that the tools must have printed: those of the calls that run and have an id of their own."""
    found = []
    for reply in replies:
        alone = len({one.id for one in reply.tool_calls if one.id}) == sum(bool(one.id) for one in reply.tool_calls)
        for one in reply.tool_calls if alone else ():
            found += [part.split()[-1] for part in one.arguments_json.split("word")[:-1]]
    return [f"{word}word" for word in found if word]


@st.composite
def segment(draw: Any, longest: int) -> tuple[Reply, ...]:
    """Some turns and an end."""
    return (*draw(st.lists(turn(), max_size=longest)), draw(ends))


conversations = st.builds(
    Conversation,
    st.lists(segment(10), min_size=1, max_size=2).map(tuple),
    st.sampled_from([1_000_000, 64, 5, 1]),
)
