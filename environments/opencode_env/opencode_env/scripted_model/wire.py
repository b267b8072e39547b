"""Replies in the wire format of OpenAI's chat completions, as vLLM serves it: reasoning is `reasoning_content`.

The pieces of a stream, joined, are exactly what the non-streaming form carries. A token is so many
characters (`CHARACTERS_PER_TOKEN`) of what the model says, in the order in which it says it; its logprob follows from
its position.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, zip_longest

from pydantic import JsonValue

from opencode_env.scripted_model.policy import CHARACTERS_PER_TOKEN, LABEL, MODEL_ID, Reply, Usage


@dataclass
class Logprobs:
    """The tokens of one reply as they come, with their logprobs, for a request that asks for them."""

    asked: bool
    _said: str = ""
    _tokens: int = 0

    def of(self, text: str, *, last: bool = False) -> dict[str, JsonValue] | None:
        """The `logprobs` of a piece: its tokens are those that end in it; with `last`, all that are left."""
        if not self.asked:
            return None
        said = self._said + text
        whole = len(said) if last else len(said) - len(said) % CHARACTERS_PER_TOKEN
        self._said = said[whole:]
        starts = range(0, whole, CHARACTERS_PER_TOKEN)
        return {"content": [self._entry(said[start : start + CHARACTERS_PER_TOKEN]) for start in starts]}

    def _entry(self, token: str) -> dict[str, JsonValue]:
        self._tokens += 1
        return {"token": token, "logprob": -(self._tokens % 8 + 1) / 8, "bytes": None, "top_logprobs": []}


Json = dict[str, JsonValue]


@dataclass(frozen=True)
class ReplyFields:
    """Holds what surrounds a reply: its id, its time (Unix seconds), its usage and what its faults leave out."""

    id: str
    created: int
    conversation: str
    turn: int
    usage: Usage | None
    finish: bool = True
    tool_call_ids: bool = True

    def head(self, kind: str) -> Json:
        """The fields that every body and every chunk carries."""
        return {"id": self.id, "object": kind, "created": self.created, "model": MODEL_ID, "system_fingerprint": LABEL}

    def tool_call_id(self, reply: Reply, index: int) -> Json:
        """The `id` field of a tool call: its own, or one that is the same in every run."""
        if not self.tool_call_ids:
            return {}
        own = reply.tool_calls[index].id
        return {"id": own if own is not None else f"call_{self.conversation[:8]}_{self.turn}_{index}"}


class PieceKind(StrEnum):
    """Names what a piece of a stream adds to."""

    REASONING = "reasoning_content"
    TEXT = "content"
    TOOL_CALL = "tool_call"
    """The head of a tool call: id and name."""
    ARGUMENTS = "arguments"


@dataclass(frozen=True)
class ReplyPiece:
    """One delta of a stream; `index` is the position of its tool call."""

    kind: PieceKind
    text: str = ""
    index: int = 0


def pieces_of(reply: Reply, chunk_characters: int) -> Iterator[ReplyPiece]:
    """The reply in deltas of at most `chunk_characters`: reasoning, text, then the tool calls in order, or mixed."""
    parts = [
        _split(PieceKind.REASONING, reply.reasoning, chunk_characters),
        _split(PieceKind.TEXT, reply.text, chunk_characters),
        *(_call_pieces(reply, index, chunk_characters) for index in reply.arrivals or range(len(reply.tool_calls))),
    ]
    if not reply.mixed:
        return chain.from_iterable(parts)
    return (piece for pieces in zip_longest(*parts) for piece in pieces if piece is not None)


def _call_pieces(reply: Reply, index: int, size: int) -> Iterator[ReplyPiece]:
    yield ReplyPiece(PieceKind.TOOL_CALL, index=index)
    yield from _split(PieceKind.ARGUMENTS, reply.tool_calls[index].arguments_json, size, index)


def _split(kind: PieceKind, text: str, size: int, index: int = 0) -> Iterator[ReplyPiece]:
    return (ReplyPiece(kind, text[start : start + size], index) for start in range(0, len(text), size))


def first_pieces(pieces: Iterable[ReplyPiece], characters: int) -> Iterator[ReplyPiece]:
    """The pieces up to so many characters, the last one shortened to fit."""
    for piece in pieces:
        if len(piece.text) >= characters:
            if characters or piece.kind is PieceKind.TOOL_CALL:
                yield replace(piece, text=piece.text[:characters])
            return
        characters -= len(piece.text)
        yield piece


def chunk(envelope: ReplyFields, delta: Json, logprobs: Json | None, finish_reason: str | None = None) -> Json:
    choice: Json = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return {**envelope.head("chat.completion.chunk"), "choices": [choice]}


def usage_chunk(envelope: ReplyFields) -> Json:
    """The last chunk of a stream that was asked to include the usage."""
    return {**envelope.head("chat.completion.chunk"), "choices": [], "usage": _usage(envelope.usage)}


def delta_of(envelope: ReplyFields, reply: Reply, piece: ReplyPiece) -> Json:
    if piece.kind is PieceKind.TOOL_CALL:
        function: Json = {"name": reply.tool_calls[piece.index].name, "arguments": ""}
        head: Json = {"index": piece.index, "type": "function", "function": function}
        return {"tool_calls": [{**envelope.tool_call_id(reply, piece.index), **head}]}
    if piece.kind is PieceKind.ARGUMENTS:
        return {"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]}
    return {reply.reasoning_key if piece.kind is PieceKind.REASONING else piece.kind.value: piece.text}


def completion(envelope: ReplyFields, reply: Reply, logprobs: Logprobs) -> Json:
    """The body of a non-streaming answer."""
    message: Json = {"role": "assistant", "content": reply.text or (None if reply.tool_calls else "")}
    if reply.reasoning:
        message[reply.reasoning_key] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [_tool_call(envelope, reply, index) for index in range(len(reply.tool_calls))]
    reason = reply.final_reason if envelope.finish else None
    said = "".join(piece.text for piece in pieces_of(reply, max(1, reply.characters)))
    choice: Json = {"index": 0, "message": message, "logprobs": logprobs.of(said, last=True), "finish_reason": reason}
    body: Json = {**envelope.head("chat.completion"), "choices": [choice]}
    return body if envelope.usage is None else {**body, "usage": _usage(envelope.usage)}


def _tool_call(envelope: ReplyFields, reply: Reply, index: int) -> Json:
    call = reply.tool_calls[index]
    function: Json = {"name": call.name, "arguments": call.arguments_json}
    return {**envelope.tool_call_id(reply, index), "type": "function", "function": function}


def error_body(message: str, kind: str, status: int) -> Json:
    """An error object as vLLM sends it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def sse(event: Json) -> bytes:
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The event that ends a stream."""


def _usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    return {**usage.model_dump(), "total_tokens": usage.prompt_tokens + usage.completion_tokens}
