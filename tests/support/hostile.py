"""Hostile texts, what reads such texts, and what one callback of an event loop costs while it does.

A reader takes a text as an agent, a page, a model or a tool server could have made it. Costs are CPU seconds of the
thread that calls it, so that a busy machine changes little; threads and processes beside it do not count.
"""

import asyncio
import base64
import gc
import gzip
import inspect
import json
import math
import time
from asyncio import events
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from opencode_env.agents.opencode.echo import OpenCodeEcho
from opencode_env.agents.opencode.harness import EVENTS_TAIL_BYTES, parse_log
from opencode_env.cli_agent.interception import answer_steps as answers
from opencode_env.cli_agent.interception.chat_answers import stream_parser
from opencode_env.cli_agent.interception.gateway import Masking
from opencode_env.tool_backends import connection
from opencode_openenv.connection_guard import refusal
from opencode_openenv.spec import RolloutSpec
from opencode_openenv.tbench2.environment import plain_name
from opencode_rubrics import answer, judge, reward_file, task_tests
from opencode_rubrics.code_problem import CodeTest, same_output, same_result
from opencode_rubrics.hybrid_math import HybridMathConfig, HybridMathRubric
from opencode_rubrics.math.worker_pool import RulesResult
from opencode_rubrics.swe.file_tree import (
    FileContent,
    TreeEntry,
    TreeError,
    _named,
    changed_paths,
    packed,
    read_listing,
    unfit,
    unpacked,
)
from opencode_rubrics.swe.split import PathSplitter
from opencode_runs.console_command import printable, printable_json, short
from opencode_runs.report.exporting import _markdown
from opencode_runs.report.masking import Masker
from opencode_runs.report.packing import cut_masked
from opencode_runs.traces.record import parse_line
from opencode_runs.trainable.inspection import hashable
from opencode_search import text_of
from opencode_search.search_endpoint import _listed
from opencode_simulation.plain_json import given_arguments, observation_json
from prime_sandboxes import APIError
from rollout_sandbox import surrogates
from rollout_sandbox.podman.runtime import _read_changes
from rollout_sandbox.prime.sdk_errors import kind_of
from rollout_sandbox.toolbox import kept_files
from rollout_sandbox.toolbox.command import TAIL_CHARS, CommandResult
from verifiers.v1.types import AssistantMessage, ToolCall

from tests.gateway.calls import call_of, session
from tests.report import made
from tests.swe.test_linear import PROBLEM
from tests.swe.test_linear import READERS as SWE

MIB = 1 << 20
FLOOR = 0.004
"""Seconds below which nothing is compared."""
QUICK = 0.01
"""Seconds that a callback may always take."""
GROWTH = 3.0
"""How much more a text may cost that is twice as long."""
MOST = 24.0
"""How often a callback may take the time of parsing as many bytes of JSON."""

_SIGNS = [*" \n\t\r\\\"'`<>[](){}.,:;=-_/#&%@!?*+|~^$aA0\0\x1b\x85", "\u00e9", "\u2028", "\u0130", "\U0001f600"]
_PAIRS = [
    "a ", " a", "a\n", "a.", "a:", "a=", "a_", "a-", "a/", "a,", "1,", "1.", "1e", "1 ", "-1", "()", "[]", "{}", "''",
    '""', "::", "..", "--", "[1", "{a", "(a", "<a", "</", "<!", "&#", "&a", "\\n", '\\"', "\\u", "^{", "_{", "$x",
]  # fmt: skip
_TOKENS = [
    # pages
    "<a ", '<a b="', "<a b='>", "<!--", "<!-- -->", "<script>", "</script", "<svg>", "<p>", "&#9", "&amp;", "<![CDATA[",
    # keys
    "eyJ0", "-eyJ0aaaaaaaa", "eyJ0aaaaaaaa.", "sk-", "-sk-a", "Bearer a", "Cookie: a=b;", "password=", "curl -u a",
    "://a:b", "private key ", "-----BEGIN PRIVATE KEY-----", "AAAAAAAAAAAAAAAA\\", "login a password ", "secret='",
    # logs
    "a::", "PASSED ", "FAILED a::b - ", "a::b PASSED\n", "a::b PASSED (", "PASSED a[", "[gw1] PASSED ", "\x1b[1m",
    "test_a (b) ... ", "--- PASS: ", "test a ... ", "ok 1 - a # ", "not ok 1 ", "a (1 ms) ", "[ 9%]", "make: ",
    " Error 127", "sh: a: ", ": 1: a: ", "env: a: ", "HTTP 500 ", "RPC failed (", "no space left on device",
    # code and settings
    "getattr(", "__import__(", "exec(", "os.", "import a\n", "from a import b\n", "open (", "test_", "pytest_",
    "if a:\n",
    "[a]\n", "[a.b]\n", "a = 1\n", "a.b.", "a.", "a=[", "'''", '"""', "[tool.pytest]\n", "setup(", "@@ -1 +1 @@\n",
    "diff --git a/x b/x\n", "+++ b/x\n", "rename from a\n", "\\\n",
    # answers
    "\\frac{1}{2}", "\\boxed{", "\\boxed{1}", "\\text{", "\\left(", "\\sqrt", "$$", "24 distinguishable ", "24 m ",
    "6 m and ", "1/", "2^", "(0)", "x+", "n \\cdot ", "1,234", "\\begin{equation*}\n", "&=", "the answer is ",
    "verdict ", "verdict____", "final ", "yes ", "yes\n", "<|", "]~b]", "[e~[", "<seed:eos>", "<think>", "</think>",
    # JSON and streams
    '{"a":', '["a",', '{"a":1}\n', '"text":"', "data: {}\n\n", "\\ud83d", "data:image/png;a", "![",
    "[],", "{},", "null,",
]  # fmt: skip


Text = Callable[[int], str]


def _repeated(unit: str) -> Text:
    return lambda size: unit * max(1, size // len(unit.encode(errors="surrogatepass")))


def _nested(opened: str, closed: str) -> Text:
    return lambda size: opened * (size // len(opened + closed)) + closed * (size // len(opened + closed))


def _counted(form: str) -> Text:
    """Distinct entries: a number of six figures in each."""
    length = len(form.format(n=100_000))
    return lambda size: "".join(form.format(n=number) for number in range(100_000, 100_000 + size // length))


_PARTS = (
    ("[", "]"),
    ("{", "}"),
    ("(", ")"),
    ("<", ">"),
    ('{"a":', "}"),
    ("\\boxed{", "}"),
    ("\\frac{", "}"),
    ("a(", ")"),
)
_FORMS = {
    "names": "name_{n}\n",
    "words": "w{n} ",
    "results": "PASSED a.py::test_{n}\n",
    "failures": "FAILED a.py::t[{n}] - a\n",
    "settings": "key{n} = {n}\n",
    "sections": "[s{n}]\n",
    "tables": "[a.b{n}]\nc = 1\n",
    "tags": "<t{n}>",
    "files": "+++ b/f{n}\n",
    "lines of JSON": '{{"k{n}": {n}}}\n',
    "commas": "{n},",
    "imports": "import m{n}\n",
}
CORPUS: dict[str, Text] = {
    **{f"repeated {unit!r}": _repeated(unit) for unit in (*_SIGNS, *_PAIRS, *_TOKENS)},
    **{f"nested {opened!r}": _nested(opened, closed) for opened, closed in _PARTS},
    **{f"many {name}": _counted(form) for name, form in _FORMS.items()},
    "a table of many keys": lambda size: "{" + ",".join(f'"k{number}":{number}' for number in range(size // 15)) + "}",
    "one long line behind a short one": lambda size: "a\n" + "b" * size,
    "lone surrogates": _repeated("\ud83d"),
}
"""Texts of about a size in bytes, by what they are."""


@dataclass(frozen=True)
class Reader:
    """What reads a text: `read` is called in a callback of a loop, or outside of one where nothing waits for it."""

    name: str
    read: Callable[[Any], Any]
    given: Callable[[str], Any] = str
    """What it is given of a text; making that costs nothing here."""
    on_loop: bool = True
    """Whether other rollouts wait meanwhile."""
    most_bytes: int = MIB
    """Of a longer text it is given the end, as its caller bounds it so."""


@contextmanager
def callbacks(costs: list[float]) -> Iterator[None]:
    """Note the cost of each callback of the loops of this thread."""
    run = events.Handle._run

    def timed(handle: events.Handle) -> None:
        began = time.thread_time()
        try:
            run(handle)
        finally:
            costs.append(time.thread_time() - began)

    events.Handle._run = timed  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        events.Handle._run = run  # type: ignore[method-assign]


def largest_callback(reader: Reader, text: str, repeats: int = 1) -> float:
    """CPU seconds of the callback that took longest, the least of some measurements: of short ones one is enough."""
    return largest_with(reader, reader.given(text[-reader.most_bytes :]), repeats)


def largest_with(reader: Reader, given: Any, repeats: int) -> float:
    least = math.inf
    gc.disable()  # it looks through what other tests have left
    try:
        for _ in range(repeats):
            if (least := min(least, _measured(reader, given))) < FLOOR:
                break
    finally:
        gc.enable()
    return least


def _measured(reader: Reader, given: Any) -> float:
    costs: list[float] = []
    began = time.thread_time()
    with suppress(Exception):
        found = reader.read(given)
        if inspect.iscoroutine(found):
            with callbacks(costs):
                asyncio.run(_refusing(found))
            return max(costs)
    return time.thread_time() - began


async def _refusing(found: Awaitable[Any]) -> None:
    with suppress(Exception):
        await found


def in_parsings(reader: Reader, name: str, size: int) -> float:
    """The largest callback as a multiple of parsing as many bytes of JSON, in strings of eight signs."""
    text = CORPUS[name](size)
    given = reader.given(text[-reader.most_bytes :])
    length = max(sum(map(len, given)) if isinstance(given, list) else len(str(given)), len(text[-reader.most_bytes :]))
    costs = []
    written = json.dumps(["x y\n z. "] * (length // 8))
    for _ in range(5):
        began = time.thread_time()
        json.loads(written)
        costs.append(time.thread_time() - began)
    return largest_with(reader, given, 3) / max(min(costs), QUICK / MOST)


def superlinear(reader: Reader, name: str, sizes: Sequence[int]) -> str:
    """What shows that a reader takes more than in proportion for a text that grows; empty if nothing does."""
    text, before = CORPUS[name], 0.0
    for number, size in enumerate(sizes):
        most = GROWTH ** math.log2(size / sizes[number - 1]) if number else math.inf
        cost = largest_callback(reader, text(size))
        if cost > most * max(before, FLOOR):
            cost = largest_callback(reader, text(size), 7)
            before = largest_callback(reader, text(sizes[number - 1]), 7)
            if cost > most * max(before, FLOOR):
                return f"{name}: {cost:.3f} s for {size} bytes, {before:.3f} s for {sizes[number - 1]}"
        before = cost
    return ""


def dearest(reader: Reader, size: int, names: Iterable[str] = tuple(CORPUS)) -> str:
    """The text of a size that costs a reader most, by name."""
    return max(names, key=lambda name: largest_callback(reader, CORPUS[name](size)))


def _stream(text: str) -> list[bytes]:
    """The events of an answer with a text and a call, in pieces as an engine sends them."""
    events_of = []
    for at in range(0, len(text), 64):
        function = {"arguments": text[at : at + 64]}
        call: dict[str, Any] = {"index": 0, "function": function}
        if at == 0:
            call |= {"id": "call_1", "type": "function", "function": {**function, "name": "a"}}
        delta = {"content": text[at : at + 64], "tool_calls": [call]}
        choice = {"index": 0, "delta": delta, "finish_reason": None if at + 64 < len(text) else "stop"}
        events_of.append(b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\n")
    return [*events_of, b"data: [DONE]\n\n"]


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _replaced(text: str) -> str:
    return _bytes(text).decode()


def _bytes_of_json(text: str) -> bytes:
    return json.dumps(text).encode()


_CALL = call_of(session())
_MASKING = Masking(["a-secret-key-of-ours", "another/secret-key"])


def _answered(events_of: list[bytes]) -> object:
    parser = stream_parser(_CALL)
    for event in events_of:
        parser.feed(event)
    return parser.finish()


def _message(text: str) -> bytes:
    content = [{"type": "text", "text": text}]
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": content}}).encode(errors="replace")


def _echoed(text: str) -> object:
    call = ToolCall(id="call_1", name="write", arguments=text)
    function = {"name": "write", "arguments": text + " "}
    echo = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    return OpenCodeEcho().recognise(AssistantMessage(content="", tool_calls=[call]), echo)


class _Pieces:
    """Bytes as they come through a pipe."""

    def __init__(self, data: bytes) -> None:
        self._left = [data[at : at + 65_536] for at in range(0, len(data), 65_536)]

    async def read(self, most: int) -> bytes:
        await asyncio.sleep(0)
        return self._left.pop(0) if self._left else b""


class _Nobody:
    async def send(self, message: object) -> None:
        """Takes it."""

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, *_: object) -> None:
        """Nothing."""


async def _printed(data: bytes) -> None:
    await connection._hear(SimpleNamespace(stdout=_Pieces(data), kill=str), _Nobody(), [])  # type: ignore[arg-type]


def _list_of_files(text: str) -> bytes:
    entries = [[f"/app/{name}", "f", 420, 0, 0, "x"] for name in text.splitlines() or [""]]
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries) + b"null\n"


async def _listed_files(lines: bytes) -> None:
    pieces = _Pieces(lines)

    async def source() -> AsyncIterator[bytes]:
        while piece := await pieces.read(0):
            yield piece

    entries = await kept_files._entries(kept_files._Stream(source()))
    await asyncio.to_thread(kept_files._planned, entries, None, 1 << 40)


def _ended(text: str) -> CommandResult:
    return CommandResult("x", 1, 0.0, text, text, timed_out=False)


def _traced(text: str) -> bytes:
    trace = made.trace(7)
    trace["nodes"][3]["message"]["content"] = text
    return json.dumps(made.episode(7, text[:1000], trace)).encode()


def _exported(line: bytes) -> str:
    episode = parse_line(line)
    return printable(_markdown(episode, episode.traces[0]))


def _listing(text: str) -> bytes:
    lines = "\n".join(f"f 1  ./{name}" for name in text.split("\n"))
    return base64.b64encode(gzip.compress(lines.encode(errors="replace"), 1))


def _archive(text: str) -> bytes:
    return packed({"a.py": FileContent(text.encode(errors="replace"))})


def _split(text: str) -> object:
    names = [name for line in text.split("\n") for name in _named(f"./{line[:2000]}", TreeEntry())]
    tree = {name: TreeEntry("1") for name in names}
    with suppress(TreeError):
        changed_paths({}, tree)
    splitter = PathSplitter(PROBLEM.row_paths, {}, tree)
    return [splitter.kind(name) for name in names], unfit({}, tree, ())


async def _ruled(text: str) -> object:
    """What mathematics does on the loop."""

    async def verified(*_: object) -> RulesResult:
        await asyncio.sleep(0)
        return RulesResult(False, "wrong")

    rubric = SimpleNamespace(config=HybridMathConfig(answer_source="reply", max_answer_bytes=MIB), _verified=verified)
    trace: Any = SimpleNamespace(last_reply=text)
    task: Any = SimpleNamespace(prompt_text="")
    return await HybridMathRubric.rule(rubric, task, "1", trace, None)  # type: ignore[arg-type]


READERS = [
    # What the interception reads of an answer; requests have bounds of their own (`tests/gateway/test_bounds.py`).
    Reader("sound_arguments", answers.sound_arguments),
    Reader("Masking.stream", _MASKING.stream, _stream, most_bytes=1 << 16),
    Reader("Masking.json", lambda text: _MASKING.json({"content": text})),
    Reader("stream_parser", _answered, _stream, most_bytes=1 << 16),
    Reader("whole_events", surrogates.whole_events, _stream, most_bytes=1 << 16),
    Reader("whole_json", lambda text: surrogates.whole_json([text])),
    Reader("OpenCodeEcho", _echoed),
    # Of a sandbox, a tool server, a platform
    Reader("parse_log", lambda text: parse_log(text, text), most_bytes=EVENTS_TAIL_BYTES),
    Reader("connection._lines", _printed, _bytes),
    Reader("connection._message", connection._message, _message),
    Reader("kept_files", _listed_files, _list_of_files),
    Reader("kept_files._printable", kept_files._printable, most_bytes=1 << 13),
    Reader(
        "podman's changes",
        lambda told: _read_changes(told, ("/proc/",)),
        lambda text: json.dumps({"added": text.split()}),
        on_loop=False,
    ),
    Reader("prime.kind_of", kind_of, APIError),
    # Rubrics
    Reader("same_answer", lambda text: answer.same_answer(text, "1,234"), most_bytes=answer.MAX_ANSWER_FILE_BYTES),
    Reader("same_output", lambda text: same_output(text, text + " 1", 1e-9, 1e-6), on_loop=False),
    Reader("same_result", lambda text: same_result(json.loads(text), CodeTest(input=[], output=[[1]])), on_loop=False),
    Reader("reward file", lambda text: reward_file._numbers(text, "reward"), most_bytes=1 << 16),
    Reader("lacked_program", task_tests.lacked_program, _ended, most_bytes=TAIL_CHARS),
    Reader("mathematics", _ruled),
    Reader("judge.read_verdict", lambda text: judge.read_verdict(text, ("yes", "no")), most_bytes=1 << 14),
    Reader(
        "judge's control tokens", lambda text: judge._CONTROL_TOKEN.sub(" ", text), most_bytes=judge.MAX_ANSWER_CHARS
    ),
    # Servers
    Reader("openenv's guard", lambda host: refusal({"headers": [(b"host", host)]}, None), _bytes, most_bytes=1 << 16),
    Reader("openenv's spec", lambda text: RolloutSpec.model_validate({"instruction": text, "verify": [text]})),
    Reader("plain_name", plain_name),
    Reader("given_arguments", lambda text: given_arguments({"a": text})),
    Reader("observation_json", lambda text: observation_json({"a": [text]})),
    # Beside a loop, or where there is none
    *(Reader(f"swe's {name}", read, _replaced, on_loop=False) for name, read in SWE.items()),
    Reader("swe's listing", read_listing, _listing, on_loop=False),
    Reader("swe's archive", lambda data: unpacked(data, {"a.py": TreeEntry("1")}, {"a.py"}), _archive, on_loop=False),
    Reader("swe's paths", _split, _replaced, on_loop=False),
    Reader("text_of", text_of, on_loop=False),
    Reader("search results", lambda text: _listed({"organic": [{"title": text, "snippet": text}]}, "organic")),
    Reader("Masker.text", lambda text: Masker().text(text), on_loop=False),
    Reader("Masker.json", lambda given: Masker().json(given), _bytes_of_json, on_loop=False),
    Reader("cut_masked", lambda text: cut_masked({"a": text}, Masker(), 4096), on_loop=False),
    Reader("export --markdown", _exported, _traced, on_loop=False),
    Reader("printable", lambda text: printable(text) + printable_json(text), on_loop=False),
    Reader("short", short, on_loop=False),
    Reader("trainable", lambda line: parse_line(line), _traced, on_loop=False),
    Reader("hashable", hashable, on_loop=False),
]
"""By the names that stand in failures."""
