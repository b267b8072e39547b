"""Reads the whole of a chat answer, in the several forms that endpoints give it.

verifiers' own reading overwrites a tool's name that comes in pieces, drops a refusal, takes one of two reasoning texts
where an agent takes the other, makes one call of several that have no index, and fails on a finish reason that is not
OpenAI's, on an `id` that is null and the like. What leaves here is in OpenAI's form, and agent and trace get
the same texts and calls; an answer that its endpoint broke off, or whose pieces do not say which call they are of, is a
failed call.
"""

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json
from verifiers.v1.dialects import StreamParser
from verifiers.v1.dialects.base import parse_sse_event
from verifiers.v1.dialects.chat import ChatStreamParser
from verifiers.v1.errors import ProviderError
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.gateway import Call
from opencode_env.cli_agent.interception.history import CALL_FIELDS

_REASONING = ("reasoning", "reasoning_content")
"""Names of the reasoning text, the one that verifiers prefers first."""

_TEXTS = ("content", "reasoning_content", "reasoning")

_OPENAI = ("stop", "length", "tool_calls", "content_filter")
_MEANINGS = {
    "stop": ("end_turn", "stop_sequence", "pause_turn", "eos", "eos_token", "end", "complete", "completed", "finished"),
    "length": ("max_tokens", "max_output_tokens", "max_length", "model_length", "model_context_window_exceeded"),
    "tool_calls": ("tool_call", "tool_use", "function_calls"),
    "content_filter": ("refusal", "safety", "recitation", "blocklist", "prohibited_content", "guardrail_intervened"),
}
_KNOWN = {name: meaning for meaning, names in _MEANINGS.items() for name in names} | {name: name for name in _OPENAI}
_BROKEN_OFF = frozenset(
    {"error", "abort", "aborted", "cancelled", "canceled", "timeout", "network_error", "insufficient_system_resource"}
)


def unusable(call: Call, what: str) -> ProviderError:
    """The failure of a call whose endpoint answered something else than an answer. Changes `unusable`."""
    call.unusable = True
    return ProviderError(what)


def said_error(call: Call, said: Any, told: str, *, begun: bool = False) -> ProviderError:
    """The failure of a call that was answered 200 and an error: of the status that the error's own code names, else of
    one that may pass where the answer had `begun`. Changes `unusable`."""
    code = str(said.get("code")) if isinstance(said, dict) else ""
    status = int(code) if re.fullmatch("[45][0-9]{2}", code) else 0
    call.unusable = not begun if not status else status not in _PASSING
    return ProviderError(told, status_code=status or 502)


_PASSING = frozenset({408, 429, 502, 503, 504, 529})
"""Codes of an error in a 200 that say that it may pass."""


def whole_answer(call: Call, raw: dict[str, Any]) -> dict[str, Any]:
    """A chat completion, made one in OpenAI's form, in place.

    Raises:
        ProviderError: the endpoint broke it off, or it says an error.
        ValueError: it is not a chat completion.
    """
    try:
        if raw.get("error") and not raw.get("choices"):
            raise said_error(call, raw["error"], f"the endpoint answered 200 and an error: {quoted(raw['error'])}")
        for choice in raw["choices"]:
            message = choice["message"]
            if isinstance(message.get("content"), list):
                message.update(_spoken(call, message["content"]))
            message.update(one_reasoning(message))
            if (refusal := message.get("refusal")) and isinstance(refusal, str):
                message |= {"content": (message.get("content") or "") + refusal, "refusal": None}
            choice["index"], message["role"] = choice.get("index") or 0, "assistant"
            for one in message.get("tool_calls") or ():
                one |= {"id": one.get("id") or "", "type": _kind(one) or "function"}
                if isinstance(native := one.get("function"), dict) and "arguments" in native:
                    native["arguments"] = _text_of(native["arguments"])
            _normalize_end(call, choice, bool(message.get("tool_calls")))
        if not raw["choices"]:
            raise ValueError("it has no choices")
        raw |= {**_sound_head(call, raw), "object": "chat.completion"}
        said = raw["choices"][0]["message"]
        raw["usage"] = _sound_usage(call, raw.get("usage"), said)
        call.call_fields = [_further(one) for one in said.get("tool_calls") or ()]
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"it is not a chat completion: {error}") from error
    return raw


def quoted(said: Any) -> str:
    """Return what an endpoint said, short enough for an error."""
    text = said if isinstance(said, str) else to_json(said).decode()
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} [… left out …]"


_QUOTED = 500


def _text_of(arguments: Any) -> str:
    """Arguments as a text: some endpoints give the object itself."""
    return arguments if isinstance(arguments, str) else "" if arguments is None else to_json(arguments).decode()


def _spoken(call: Call, content: Sequence[Any]) -> dict[str, str]:
    """The text and the reasoning of content that is a list of parts."""
    said: dict[str, str] = {"content": ""}
    for part in content:
        inner = {"type": "text", "text": part} if isinstance(part, str) else part
        kind = inner.get("type") if isinstance(inner, dict) else None
        if kind in ("text", "output_text") and isinstance(inner.get("text"), str):
            said["content"] += inner["text"]
        elif kind == "thinking":
            within = inner.get("thinking")
            thought = within if isinstance(within, str) else _spoken(call, within or ())["content"]
            said["reasoning_content"] = said.get("reasoning_content", "") + thought
        else:
            raise unusable(call, f"the endpoint's answer has content that is not text: {quoted(part)}")
    return said


def _sound_head(call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
    """The `id`, `created` and `model` of an answer, as texts and whole seconds; agents fail on others."""
    created = given.get("created")
    if created is None:
        created = int(time.time())
    elif not _is_number(created):
        raise unusable(call, f"the endpoint's answer has no time in `created`: {quoted(created)}")
    texts = {"id": given.get("id"), "model": given.get("model")}
    head = {name: value if isinstance(value, str) else _text_of(value) for name, value in texts.items()}
    return {**head, "id": head["id"] if given.get("id") is not None else "vf-intercept", "created": int(created)}


def _is_number(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS = (("prompt_tokens_details", "cached_tokens"), ("completion_tokens_details", "reasoning_tokens"))
_BYTES_PER_TOKEN = 4
"""For an estimate."""


def _sound_usage(call: Call, usage: Any, said: Mapping[str, Any]) -> dict[str, Any]:
    """The usage of an answer with all three counts; what is missing is estimated. Changes `estimated`."""
    given = {} if usage is None else usage
    details = [(given.get(name) or {}, count) for name, count in _DETAILS] if isinstance(given, dict) else []
    if not isinstance(given, dict) or not all(isinstance(one, dict) for one, _ in details):
        raise unusable(call, f"the endpoint's answer has a `usage` that is not one: {quoted(usage)}")
    counts = [given.get(name) for name in _COUNTS]
    if not all(one is None or (_is_number(one) and one >= 0) for one in (*counts, *(d.get(n) for d, n in details))):
        raise unusable(call, f"the endpoint's answer has counts in `usage` that are not numbers: {quoted(usage)}")
    if all(type(one) is int for one in counts):
        return given
    prompt, completion, total = (None if one is None else int(one) for one in counts)
    if completion is None and prompt is not None and total is not None:
        completion = max(0, total - prompt)
    elif completion is None:
        completion = _estimated(call, said)
    if prompt is None and total is not None:
        prompt = max(0, total - completion)
    elif prompt is None:
        prompt = _estimated(call, [call.body.get("messages"), call.body.get("tools")])
    return {**given, "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _estimated(call: Call, text: Any) -> int:
    call.estimated = True
    return math.ceil(len(to_json(text)) / _BYTES_PER_TOKEN)


ESTIMATED = "estimated_usage"
"""Key in a trace's `info` with the nodes of the answers whose usage holds an estimate; absent without any."""


def note_forms(call: Call) -> None:
    """Note on the trace what a recorded answer does not hold: that its usage is estimated, further fields of calls."""
    if call.session is None or call.record is None or call.record.node is None:
        return
    info, node = call.session.trace.info, call.record.node
    if call.estimated:
        info.setdefault(ESTIMATED, []).append(node)
    if any(call.call_fields):
        info.setdefault(CALL_FIELDS, {})[str(node)] = call.call_fields


_OF_A_CALL = frozenset({"index", "id", "type", "function", "custom"})


def _further(piece: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in piece.items() if key not in _OF_A_CALL and value is not None}


def _normalize_end(call: Call, choice: dict[str, Any], calls: bool) -> None:
    """Give an answer's end the name that it has with OpenAI, or refuse one that its endpoint broke off."""
    said = choice.get("finish_reason")
    if not isinstance(said, str) or said in _OPENAI:
        return
    name = said.strip().lower()
    if name in _BROKEN_OFF:
        raise ProviderError(f"the endpoint broke its answer off: its finish reason is {said!r}", status_code=503)
    if name not in _KNOWN and name != "function_call":
        call.gateway.note("unknown finish reason", [said])
    choice["finish_reason"] = _KNOWN.get(name, "tool_calls" if calls else "stop")


def stream_parser(call: Call) -> StreamParser:
    """A parser of the stream that answers a call."""
    functions = [tool.get("function") for tool in call.body.get("tools") or ()]
    return _Parser(call, {one.get("name") for one in functions if isinstance(one, dict)})


@dataclass
class _StreamedCall:
    index: Any
    """That of its pieces; None: they have none."""
    identity: str = ""
    kind: str | None = None
    names: list[str] | None = None
    """The pieces of its name; None: nothing has come that could be one."""
    namespace: str = ""
    inputs: list[str] = field(default_factory=list)
    """The pieces of its arguments."""
    further: dict[str, Any] = field(default_factory=dict)

    def take(self, piece: Mapping[str, Any]) -> None:
        self.identity = piece.get("id") or self.identity
        self.kind = _kind(piece) or self.kind
        native = _native(piece)
        if native.get("name") is not None:
            self.names = [*(self.names or ()), *([native["name"]] if native["name"] else ())]
        self.namespace = native.get("namespace") or self.namespace
        if text := _text_of(native.get("input" if self.kind == "custom" else "arguments")):
            self.inputs.append(text)
        self.further |= _further(piece)

    def has_whole_arguments(self) -> bool:
        """Whether its arguments are JSON, so that no further piece is of them."""
        try:
            from_json("".join(self.inputs))
        except ValueError:
            return False
        return True

    def said_before(self, piece: Mapping[str, Any]) -> bool:
        """Whether a piece brings the whole call once more, as some endpoints do at its end."""
        native = _native(piece)
        same = piece.get("id") == self.identity if piece.get("id") else not native.get("name")
        return same and self.inputs == [_text_of(native.get("arguments"))] and self.came_whole()

    def came_whole(self) -> bool:
        """Whether one piece brought all of its arguments."""
        return len(self.inputs) == 1 and self.inputs[0].lstrip().startswith("{") and self.has_whole_arguments()

    def as_json(self, offered: Collection[Any]) -> dict[str, Any]:
        """The call as it stands in a chat completion."""
        assert self.kind is not None
        native = {"name": whole_name(self.names, offered) if self.names else ""}
        native |= {"namespace": self.namespace} if self.namespace else {}
        native["input" if self.kind == "custom" else "arguments"] = "".join(self.inputs)
        return {"id": self.identity, "type": self.kind, self.kind: native, **self.further}


def _kind(piece: Mapping[str, Any]) -> str | None:
    """The type of a call by a piece of it: what it holds, whatever it says."""
    for kind in ("custom", "function"):
        if piece.get(kind) is not None:
            return kind
    found: str | None = piece.get("type")
    return found


def _native(piece: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = _kind(piece)
    found: Mapping[str, Any] = piece.get(kind) or {} if kind else {}
    return found


class _Parser(ChatStreamParser):
    """Reads one stream, the answer to a call that offers tools of these names."""

    def __init__(self, call: Call, offered: Collection[Any]) -> None:
        super().__init__()
        self._call = call
        self._offered = offered
        self._calls: list[_StreamedCall] = []
        self._newest: dict[Any, _StreamedCall] = {}
        """By index, the call that further pieces under it are of."""
        self._last: _StreamedCall | None = None

    def feed(self, raw: bytes) -> None:
        chunk = parse_sse_event(raw)
        if chunk is None:
            return
        if not isinstance(chunk, dict):
            raise unusable(self._call, f"the endpoint's stream holds what is not a chat completion: {quoted(chunk)}")
        if self.head is None:
            self.head = chunk
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            if not choice.get("index"):
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
                self._take(choice.get("delta") or {})

    def _take(self, delta: dict[str, Any]) -> None:
        for key in _TEXTS:
            said = delta.get(key)
            if said is None:
                continue
            if isinstance(said, str):
                self.message_parts.setdefault(key, []).append(said)
            elif key == "content" and isinstance(said, list):
                for name, text in _spoken(self._call, said).items():
                    self.message_parts.setdefault(name, []).append(text)
            else:
                raise unusable(self._call, f"the endpoint's stream has no text in `{key}`: {quoted(said)}")
        if isinstance(refusal := delta.get("refusal"), str):
            self.message_parts.setdefault("content", []).append(refusal)
        if details := delta.get("reasoning_details"):
            super().feed(b"data: " + to_json({"choices": [{"delta": {"reasoning_details": details}}]}))
        for piece in delta.get("tool_calls") or ():
            if self._goes_on(piece):
                continue
            self._last = self._call_of(piece)
            if not self._last.said_before(piece):
                self._last.take(piece)

    def _goes_on(self, piece: dict[str, Any]) -> bool:
        """Take up a piece that is nothing but more arguments of the call under its index, as most are."""
        known, function = self._newest.get(piece.get("index")), piece.get("function")
        if known is None or len(known.inputs) < 2 or piece.get("id") or not isinstance(function, dict):
            return False
        if (
            function.get("name")
            or not isinstance(text := function.get("arguments"), str)
            or not piece.keys() <= _OF_A_CALL
        ):
            return False
        known.inputs.append(text)
        self._last = known
        return True

    def _call_of(self, piece: dict[str, Any]) -> _StreamedCall:
        """The call that a piece is of, which may be a new one."""
        native = _native(piece)
        index, identity, name = piece.get("index"), piece.get("id") or "", native.get("name") or ""
        if index is not None and not _is_number(index):
            raise unusable(self._call, f"a call of the endpoint's stream has no number for an index: {quoted(piece)}")
        known = self._last if index is None else self._newest.get(index)
        if known is None:
            return self._open(index)
        same = bool(identity) and identity == known.identity
        # A name that comes again with every piece begins no call, one behind whole arguments does.
        more = name and _text_of(native.get("arguments")).strip() and not known.said_before(piece)
        again = more and known.came_whole()
        if index is None:
            return self._open(None) if (identity or name) and (not same or again) else known
        if again and (same or not identity):
            return self._open(index)
        if not identity or same or not known.identity:
            return known
        if name and known.has_whole_arguments():
            return self._open(index)
        told = "the endpoint's stream has two ids under one index before the first call's arguments are whole"
        raise ProviderError(f"{told}: {known.identity!r}, {quoted(piece)}")

    def _open(self, index: Any) -> _StreamedCall:
        call = _StreamedCall(index)
        self._calls.append(call)
        if index is not None:
            self._newest[index] = call
        return call

    def finish(self) -> Response:
        texts = {key: "".join(parts) for key, parts in self.message_parts.items()}
        self.message_parts = {key: [text] for key, text in (texts | one_reasoning(texts)).items()}
        if nameless := [call for call in self._calls if call.names is None and call.kind in _CALLED]:
            told = "the endpoint's stream has pieces of a call and does not say of which: no name came for"
            raise ProviderError(f"{told} {quoted([[call.identity, ''.join(call.inputs)] for call in nameless])}")
        indices = [call.index for call in self._calls]
        if None not in indices and len(set(indices)) == len(indices):
            self._calls.sort(key=lambda call: call.index)
        calls = [call for call in self._calls if call.kind in _CALLED]
        self.tool_calls = {number: call.as_json(self._offered) for number, call in enumerate(calls)}
        self._call.call_fields = [call.further for call in calls]
        end = {"finish_reason": self.finish_reason}
        _normalize_end(self._call, end, bool(self.tool_calls))
        self.finish_reason = end["finish_reason"]
        self.head = _sound_head(self._call, self.head or {})
        said = {**self.message_parts, "tool_calls": [*self.tool_calls.values()]}
        self.usage = _sound_usage(self._call, self.usage, said)
        return super().finish()


_CALLED = ("function", "custom", None)
"""Types of calls that an agent runs; None: nothing says one."""


def one_reasoning(message: Mapping[str, Any]) -> dict[str, str]:
    """The reasoning of an answer that gives it two names: the same text under both, verifiers' choice of the two."""
    given = {name: message[name] for name in _REASONING if isinstance(message.get(name), str)}
    text = next(filter(None, given.values()), "")
    return dict.fromkeys(given, text) if len(given) > 1 else {}


def whole_name(pieces: Sequence[str], offered: Collection[str]) -> str:
    """A tool's name that came in pieces, or again with later pieces of its call."""
    joined, last = "".join(pieces), pieces[-1]
    if joined in offered:
        return joined
    return last if last in offered or set(pieces) == {last} else joined
