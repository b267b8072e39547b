"""Which behaviours a model's answers show, so that what was generated can be counted and nothing is missing."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opencode_env.agents.opencode.echo import parse_json
from opencode_env.scripted_model import Reply, ToolCall

from tests.history.outputs import Conversation, said_in
from tests.history.spelling import BROKEN, DEEP

Shows = Callable[[ToolCall], bool]


def _has(pattern: str) -> Shows:
    found = re.compile(pattern, re.DOTALL)
    return lambda call: found.search(call.arguments_json) is not None


def _is_json(call: ToolCall) -> bool:
    try:
        parse_json(call.arguments_json)
    except ValueError:
        return False
    return True


OF_CALLS: Mapping[str, Shows] = {
    "spacing": _has(r'[{,:"]\s+"|\s[:,}]'),
    "key order": _has(r'"description".*"command"'),
    "integer-like keys": _has(r'"(1|2|10)"\s*:'),
    "escapes": _has(r"\\u0065|\\/|\\u0078"),
    "numbers": _has(r"\d\.0\b|\de\d|\dE"),
    "numbers beyond doubles": _has(r"\d[eE]-?400|e308|\d{20}"),
    "big integers": _has(r"9007199254740993|12345678901234567890"),
    "negative zero": _has(r"-0\b"),
    "duplicate keys": _has(r'"command": "echo first'),
    "nested objects": _has(r':\s*\{\s*"'),
    "a lone surrogate": _has(r"\\ud83d(?!\\ude00)"),
    "null character": _has(r"\\u0000"),
    "another normal form": _has("e\u0301"),
    "byte order mark": _has("\ufeff"),
    "names of an object's own": _has(r'"(constructor|toString|hasOwnProperty|then|toJSON)"'),
    "no arguments": lambda call: not call.arguments_json.strip(),
    "null": lambda call: call.arguments_json == "null",
    "array": lambda call: call.arguments_json[:1] == "[",
    "string": lambda call: call.arguments_json == '"x"',
    "number": lambda call: call.arguments_json in ("5", "5.0"),
    "broken JSON": lambda call: call.arguments_json in BROKEN,
    "NaN": _has(r":\s*NaN"),
    "raw newline": _has(r'"a\nb"'),
    "__proto__": _has(r'"(_|\\u005f)_proto__"\s*:'),
    "forbidden constructor": _has(r'"prototype"'),
    "more than JSON": _has(r"\}\}$|\} and more|\}\{"),
    "deep nesting": lambda call: call.arguments_json in DEEP,
    "cut arguments": lambda call: call.arguments_json[:1] == "{" and not _is_json(call),
    "missing arguments": lambda call: call.arguments_json == "{}",
    "unknown name": lambda call: call.name in ("nothing", "ba sh", "bash.run"),
    "padded name": lambda call: call.name != call.name.strip(),
    "re-cased name": lambda call: call.name in ("Bash", "BASH", "Tell"),
    "name `invalid`": lambda call: call.name == "invalid",
    "no name": lambda call: not call.name,
    "long name": lambda call: len(call.name) > 64,
    "name of an object's own": lambda call: call.name in ("constructor", "toString", "valueOf", "__proto__"),
    "empty id": lambda call: call.id == "",
    "odd id": lambda call: call.id not in (None, "", "call_same"),
    "id of an object's own": lambda call: call.id in ("constructor", "toString", "__proto__"),
    "ordinary tools": lambda call: call.name in ("read", "write", "edit", "glob", "todowrite"),
    "huge output": _has("seq 1 40000"),
    "binary output": _has("377"),
}

OF_REPLIES: Mapping[str, Callable[[Reply], bool]] = {
    "parallel calls": lambda reply: len(reply.tool_calls) > 1,
    "equal calls": lambda reply: len({call.arguments_json for call in reply.tool_calls}) < len(reply.tool_calls),
    "one id, other arguments": lambda reply: _of_one_id(reply) > 1,
    "out of order": lambda reply: list(reply.arrivals or ()) != sorted(reply.arrivals or ()),
    "ids left out": lambda reply: bool(reply.faults),
    "mixed pieces": lambda reply: reply.mixed,
    "null text": lambda reply: reply.null_text,
    "`reasoning`": lambda reply: bool(reply.reasoning) and reply.reasoning_key == "reasoning",
    "`reasoning_content`": lambda reply: bool(reply.reasoning) and reply.reasoning_key != "reasoning",
    "reasoning, text and calls": lambda reply: bool(reply.reasoning and reply.text and reply.tool_calls),
    "reasoning alone": lambda reply: bool(reply.reasoning) and not (reply.text or reply.tool_calls),
    "blanks alone": lambda reply: bool(reply.text) and not reply.text.strip(),
    "blanks behind": lambda reply: bool(reply.text.strip()) and reply.text != reply.text.rstrip(),
    "odd characters": lambda reply: "\x00" in reply.text,
    "tags": lambda reply: "<think>" in reply.text,
    "`length` with cut arguments": lambda reply: reply.finish_reason == "length" and _is_cut(reply),
    "`length` with a valid call": lambda reply: reply.finish_reason == "length" and not _is_cut(reply),
    "`stop` with a call": lambda reply: reply.finish_reason == "stop" and bool(reply.tool_calls),
    "empty answer": lambda reply: reply.blank and not reply.reasoning,
}


def _of_one_id(reply: Reply) -> int:
    return len({call.arguments_json for call in reply.tool_calls if call.id == "call_same"})


def _is_cut(reply: Reply) -> bool:
    return any(OF_CALLS["cut arguments"](call) for call in reply.tool_calls)


def behaviours(conversation: Conversation) -> Counter[str]:
    """How often each behaviour is shown."""
    found: Counter[str] = Counter()
    for segments in (conversation.segments, *conversation.jobs):
        found["resumed"] += len(segments) - 1
        found["resumed behind an empty answer"] += sum(OF_REPLIES["empty answer"](one[-1]) for one in segments[:-1])
        for reply in said_in(segments):
            found.update(name for name, shows in OF_REPLIES.items() if shows(reply))
            for call in reply.tool_calls:
                found.update(name for name, shows in OF_CALLS.items() if shows(call))
    found["sub-agents"] += len(conversation.jobs)
    found["resumed sub-agents"] += sum(len(job) > 1 for job in conversation.jobs)
    found["one piece" if conversation.pieces > 1000 else "many pieces"] += 1
    return +found


KINDS = {*OF_CALLS, *OF_REPLIES, "resumed", "resumed behind an empty answer", "one piece", "many pieces"}
OF_SUB_AGENTS = {"sub-agents", "resumed sub-agents"}


@dataclass
class Played:
    """How much was played."""

    rollouts: int = 0
    conversations: int = 0
    """Of main agents and sub-agents."""
    calls: int = 0
    """Of models."""
    behaviours: Counter[str] = field(default_factory=Counter)

    def add(self, conversation: Conversation, calls: int) -> None:
        """Count one rollout."""
        self.rollouts += 1
        self.conversations += 1 + len(conversation.jobs)
        self.calls += calls
        self.behaviours += behaviours(conversation)

    def __str__(self) -> str:
        shown = f"{self.behaviours.total()} behaviours of {len(self.behaviours)} kinds"
        return f"{self.rollouts} rollouts, {self.conversations} conversations, {self.calls} model calls, {shown}"
