"""What a model may say, generated: calls in every spelling, calls that cannot run, odd ids, orders and ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from hypothesis import strategies as st
from opencode_env.scripted_model import Fault, FaultKind, Reply, ToolCall

from tests.history.meaning import TELL, WITNESS
from tests.history.spelling import BROKEN, DEEP, NO_OBJECT, spelled, spelled_object

TOKEN = "@word@"
"""Stands for a word of its own in every call of `bash` that runs."""

_TIMEOUTS = ["59999", "6.0E4", "5e4", "50000.0"]
_LACKING = [
    *["{}", '{"command": 5}', '{"command": null}', '{"command": ["echo"]}', '{"description": "d", "timeout": 5000.0}'],
    *['{"command": "true", "description": "d", "timeout": "5"}', '{"command": "true", "description": 1.0}'],
]
_OF_EVERY_OBJECT = ["constructor", "Constructor", "toString", "valueOf", "__proto__"]
"""OpenCode takes them for tools, aborts the call, and ends there if the answer was cut off by its length."""
_NAMES = [
    *["nothing", "Nothing", "invalid", "Invalid", "ba sh", "bash.run", "functions.bash", "bash\n", " tell", "bäsh"],
    *["", " ", "n" * 70, "N" * 5000, *_OF_EVERY_OBJECT, "\u212a"],
]
_IDS = [
    *["", " ", "x" * 500, "a:b/{}", "é\U0001f600", "constructor", "toString", "__proto__", "0", "call|fc|1", "a\nb"],
    *["functions.bash:0", "\u2028", "null"],
]
_ORDINARY = [
    ("bash", {"command": "seq 1 40000", "description": "much"}),
    ("bash", {"command": "printf 'a\\377\\000b\\033[31m'", "description": "binary"}),
    ("bash", {"command": "true", "description": "nothing"}),
    ("bash", {"command": "echo no >&2; exit 3", "description": "fails"}),
    ("write", {"filePath": "/app/made.txt", "content": "one\r\ntwo\u2028\n"}),
    ("edit", {"filePath": "/app/made.txt", "oldString": "one", "newString": "three"}),
    ("read", {"filePath": "/app/made.txt", "limit": 5.0}),
    ("read", {"filePath": "/nowhere"}),
    ("glob", {"pattern": "*"}),
    ("todowrite", {"todos": [{"content": "a", "status": "pending", "priority": "high", "id": "1"}]}),
]


@st.composite
def runnable(draw: Any) -> str:
    """Arguments with which the tool `bash` prints the token, spelled as no serialiser would."""
    members = [
        ('"command"', spelled(f"echo {TOKEN} | tee -a {WITNESS}", draw(st.booleans()))),
        ('"description"', spelled(draw(st.sampled_from(["a", "é\u2028", "\U0001f600/"])), draw(st.booleans()))),
    ]
    if draw(st.booleans()):
        members.append(('"timeout"', draw(st.sampled_from(_TIMEOUTS))))
    text: str = draw(spelled_object(members))
    return f'{{"command": "echo first | tee -a {WITNESS}",{text[1:]}' if draw(st.booleans()) else text


@st.composite
def call(draw: Any, identity: str | None = None) -> ToolCall:
    """One call, which runs or does not."""
    name, arguments = "bash", ""
    match draw(st.sampled_from(["runs", "tells", "tells", "ordinary", "cased", "broken", "lacks", "cut", "unknown"])):
        case "runs":
            arguments = draw(runnable())
        case "tells":
            name, arguments = TELL, draw(st.one_of(spelled_object(()), spelled_object(()), st.sampled_from(DEEP)))
        case "ordinary":
            name, given = draw(st.sampled_from(_ORDINARY))
            return ToolCall(name=name, arguments=given, id=identity)
        case "cased":
            name = draw(st.sampled_from(["Bash", "BASH", "Tell"]))
            arguments = draw(spelled_object(()) if name == "Tell" else runnable())
        case "broken":
            name = draw(st.sampled_from(["bash", TELL, "Tell"]))
            arguments = draw(st.sampled_from([*NO_OBJECT, *BROKEN]))
        case "lacks":
            arguments = draw(st.sampled_from(_LACKING))
        case "cut":
            whole = draw(runnable())
            arguments = whole[: draw(st.integers(1, max(1, len(whole) - 2)))]
        case "unknown":
            name, arguments = draw(st.sampled_from(_NAMES)), draw(st.one_of(runnable(), st.sampled_from(BROKEN)))
    return ToolCall(name=name, arguments=arguments, id=identity)


_texts = st.sampled_from(
    [
        *["", "", "", "Said.", " \n", " before", "behind \n ", "<think>no</think>", "\u2028\x00é\U0001f600", "{}"],
        *["e\u0301\ufeff", "a" * 3000, "<tool_call>{}</tool_call>", "CRITICAL - MAXIMUM STEPS REACHED\n\nStop."],
    ]
)
_reasoning = st.sampled_from(["", "", "Thought.", " ", "</think>", " é\n\n", "e\u0301 "])
_streams = st.sampled_from([{}, {}, {"mixed": True}, {"null_text": True}, {"mixed": True, "null_text": True}])
_keys = st.sampled_from(["reasoning_content", "reasoning"])


@st.composite
def turn(draw: Any) -> Reply:
    """An answer with calls, after which the agent goes on."""
    number = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
    style = draw(st.sampled_from(["own", "own", "same", "odd", "missing"]))
    given: list[str | None] = [None] * number
    if style == "same":
        given = ["call_same"] * number
    elif style == "odd":
        given = draw(st.lists(st.one_of(st.none(), st.sampled_from(_IDS)), min_size=number, max_size=number))
    calls = [draw(call(identity)) for identity in given]
    if number > 1 and draw(st.booleans()):
        calls[-1] = calls[0].model_copy(update={"id": given[-1]})
    aborted = any(one.name in _OF_EVERY_OBJECT for one in calls)
    return Reply(
        text=draw(_texts),
        reasoning=draw(_reasoning),
        reasoning_key=draw(_keys),
        tool_calls=tuple(calls),
        arrivals=tuple(draw(st.permutations(range(number)))) if draw(st.booleans()) else None,
        finish_reason=draw(st.sampled_from([None, None, "stop", "stop" if aborted else "length"])),
        faults=(Fault(kind=FaultKind.NO_TOOL_CALL_ID),) if style == "missing" else (),
        **draw(_streams),
    )


@st.composite
def end(draw: Any) -> Reply:
    """An answer with which the agent ends and the user goes on."""
    return Reply(
        text=draw(st.sampled_from(["Done.", "", "", " ", "é \n"])),
        reasoning=draw(st.sampled_from(["", "", "Thought.", " "])),
        reasoning_key=draw(_keys),
        finish_reason=draw(st.sampled_from([None, None, "length"])),
        **draw(_streams),
    )


@st.composite
def segment(draw: Any, turns: range) -> tuple[Reply, ...]:
    """So many turns and an end."""
    return (*draw(st.lists(turn(), min_size=turns[0], max_size=turns[-1])), draw(end()))


Segments = tuple[tuple[Reply, ...], ...]


@dataclass(frozen=True)
class Conversation:
    """What the model says, segment by segment."""

    segments: Segments
    """Of the main agent; the user goes on between two."""
    jobs: tuple[Segments, ...] = ()
    """Of its sub-agents: all start at once, and a later segment of the main agent goes on with each, one by one."""
    pieces: int = 1_000_000
    """The most characters in a piece of a stream."""

    def with_words(self) -> "Conversation":
        """The same with a word of its own in every call that runs."""
        words = count()
        jobs = tuple(_worded(job, words) for job in self.jobs)
        return Conversation(_worded(self.segments, words), jobs, self.pieces)


def _worded(segments: Segments, words: Iterator[int]) -> Segments:
    return tuple(tuple(_worded_reply(reply, words) for reply in segment) for segment in segments)


def _worded_reply(reply: Reply, words: Iterator[int]) -> Reply:
    calls = [
        one.model_copy(update={"arguments": one.arguments_json.replace(TOKEN, f"w{next(words)}word")})
        for one in reply.tool_calls
    ]
    return reply.model_copy(update={"tool_calls": tuple(calls)})


def said_in(segments: Segments) -> Sequence[Reply]:
    """Every reply, in order."""
    return [reply for one in segments for reply in one]


_pieces = st.sampled_from([1_000_000, 64, 5, 1])


def _segments(turns: range) -> st.SearchStrategy[Segments]:
    """One segment, or two now and then: each is a start of the agent."""
    counts = st.sampled_from([1, 1, 2])
    return counts.flatmap(lambda number: st.tuples(*[segment(turns)] * number))


def conversations(turns: range, of_jobs: range | None = None) -> st.SearchStrategy[Conversation]:
    """Of a main agent and, with turns of theirs, its sub-agents, with so many turns in a segment: a start costs as much
    as 15 turns."""
    jobs = st.just(()) if of_jobs is None else st.lists(_segments(of_jobs), max_size=3).map(tuple)
    return st.builds(Conversation, _segments(turns), jobs, _pieces)
