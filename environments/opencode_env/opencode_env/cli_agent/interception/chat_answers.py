"""Reads the whole of a chat answer, in the several forms that endpoints give it.

verifiers' own reading overwrites a tool's name that comes in pieces, drops a refusal, takes one of two reasoning texts
where an agent takes the other, and fails on a finish reason that is not OpenAI's. Invariant: what leaves here is in
OpenAI's form, and agent and trace get the same texts; an answer that its endpoint broke off is a failed call.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from verifiers.v1.dialects import StreamParser
from verifiers.v1.dialects.base import parse_sse_event
from verifiers.v1.dialects.chat import ChatStreamParser
from verifiers.v1.errors import ProviderError
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.call import Call

_REASONING = ("reasoning", "reasoning_content")
"""Names of the reasoning text, the one that verifiers prefers first."""

_OPENAI = ("stop", "length", "tool_calls", "content_filter", "function_call")
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


def whole_answer(call: Call, raw: dict[str, Any]) -> dict[str, Any]:
    """A chat completion, made one in OpenAI's form, in place.

    Raises:
        ProviderError: the endpoint broke it off.
        ValueError: it is not a chat completion.
    """
    try:
        for choice in raw["choices"]:
            message = choice["message"]
            message.update(one_reasoning(message))
            if (refusal := message.get("refusal")) and isinstance(refusal, str):
                message |= {"content": (message.get("content") or "") + refusal, "refusal": None}
            _normalize_end(call, choice, bool(message.get("tool_calls")))
        if not raw["choices"]:
            raise ValueError("it has no choices")
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"it is not a chat completion: {error}") from error
    return raw


def _normalize_end(call: Call, choice: dict[str, Any], calls: bool) -> None:
    """Give an answer's end the name that it has with OpenAI, or refuse one that its endpoint broke off."""
    said = choice.get("finish_reason")
    if not isinstance(said, str) or said in _OPENAI:
        return
    name = said.strip().lower()
    if name in _BROKEN_OFF:
        raise ProviderError(f"the endpoint broke its answer off: its finish reason is {said!r}", status_code=503)
    if name not in _KNOWN:
        call.gateway.note("unknown finish reason", [said])
    choice["finish_reason"] = _KNOWN.get(name, "tool_calls" if calls else "stop")


def stream_parser(call: Call) -> StreamParser:
    """A parser of an answer to a call that comes in pieces."""
    functions = [tool.get("function") for tool in call.body.get("tools") or ()]
    return _Parser(call, {one.get("name") for one in functions if isinstance(one, dict)})


class _Parser(ChatStreamParser):
    """Reads one stream, the answer to a call that offers tools of these names."""

    def __init__(self, call: Call, offered: Collection[Any]) -> None:
        super().__init__()
        self._call = call
        self._offered = offered
        self._names: dict[int, list[str]] = {}

    def feed(self, raw: bytes) -> None:
        super().feed(raw)
        if b'"refusal"' not in raw and b'"name"' not in raw:
            return
        for choice in (parse_sse_event(raw) or {}).get("choices") or ():
            if choice.get("index", 0) == 0:
                self._take(choice.get("delta") or {})

    def _take(self, delta: dict[str, Any]) -> None:
        if isinstance(refusal := delta.get("refusal"), str):
            self.message_parts.setdefault("content", []).append(refusal)
        for call in delta.get("tool_calls") or ():
            index = call.get("index", 0)
            slot = self.tool_calls[index]
            if name := (call.get(slot.get("type")) or {}).get("name"):
                pieces = self._names.setdefault(index, [])
                pieces.append(name)
                slot[slot["type"]]["name"] = whole_name(pieces, self._offered)

    def finish(self) -> Response:
        texts = {key: "".join(parts) for key, parts in self.message_parts.items()}
        self.message_parts = {key: [text] for key, text in (texts | one_reasoning(texts)).items()}
        end = {"finish_reason": self.finish_reason}
        _normalize_end(self._call, end, bool(self.tool_calls))
        self.finish_reason = end["finish_reason"]
        return super().finish()


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
