"""An endpoint that misbehaves in one named way: raw HTTP, so that a behaviour decides on every byte and on its end.

A conversation names its behaviour in its first user message and has two answers: a call of `bash` that writes a
file, then text. A path prefix says who asks, so that one server tells the bare binary's requests from ours.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

COMMAND = "printf made > made.txt"
Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `pieces` are sent one after the other."""

    pieces: Sequence[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    ends: Literal["chunked", "length", "closed", "cut"] = "chunked"
    """`closed`: the connection's end is the body's; `cut`: the connection ends before a chunked body has."""
    pause: float = 0.0
    """Seconds before each piece."""


@dataclass(frozen=True)
class Asked:
    """One request: which answer of the conversation it asks for (1 or 2), and how often that was asked for before."""

    body: Json
    turn: int
    before: int


Behaviour = Callable[[Asked], Answer]


def chunk(delta: object = None, finish: object = None, **top: object) -> Json:
    """One event of an ordinary stream; `top` replaces or, by `...`, removes fields of the event."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    event: Json = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "scripted-model",
        "choices": [choice],
    }  # fmt: skip
    return {name: value for name, value in (event | top).items() if value is not ...}


def call(arguments: object = None, **fields: object) -> Json:
    """A whole tool call as one delta has it; a field that is `...` is left out."""
    text = json.dumps({"command": COMMAND, "description": "write"}) if arguments is None else arguments
    found: Json = {
        "index": 0, "id": "call_1", "type": "function", "function": {"name": "bash", "arguments": text},
    }  # fmt: skip
    return {name: value for name, value in (found | fields).items() if value is not ...}


USAGE: Json = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
USAGE_EVENT = chunk(choices=[], usage=USAGE)


def events(
    turn: int, *calls: Json, usage: Json | None = USAGE_EVENT, finish: object = ..., text: object = "done"
) -> list[Json]:
    """An ordinary stream of an answer: a tool call, then text."""
    deltas: list[Json] = [chunk({"role": "assistant", "content": ""})]
    if turn == 1:
        deltas.append(chunk({"tool_calls": list(calls or [call()])}))
    else:
        deltas.append(chunk({"content": text}))
    ended = ("tool_calls" if turn == 1 else "stop") if finish is ... else finish
    return [*deltas, chunk({}, ended), *([usage] if usage else [])]


def sse(found: Sequence[Json | str], *, done: bool = True, **options: Any) -> Answer:
    """A stream of events; texts are sent as they are."""
    pieces = [
        one.encode("utf-8", "surrogatepass") if isinstance(one, str) else f"data: {json.dumps(one)}\n\n".encode()
        for one in found
    ]
    return Answer([*pieces, *([b"data: [DONE]\n\n"] if done else [])], **options)


def document(value: object, status: int = 200, kind: str = "application/json", **options: Any) -> Answer:
    """One text or JSON value as the whole body."""
    body = value if isinstance(value, str) else json.dumps(value)
    headers = {"content-type": kind, **options.pop("headers", {})}
    return Answer([body.encode()], status, headers, "length", **options)


class Endpoint:
    """Serves the behaviours on the loopback; `requests` counts the model calls by who asked and behaviour."""

    def __init__(self, behaviours: Mapping[str, Behaviour]) -> None:
        self.behaviours = behaviours
        self.requests: Counter[tuple[str, str]] = Counter()
        self.bodies: dict[tuple[str, str], list[Json]] = {}
        self._asked: Counter[tuple[str, str, int]] = Counter()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Endpoint":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        return self

    async def __aexit__(self, *ended: object) -> None:
        assert self._server is not None
        self._server.close()

    def url(self, who: str) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/{who}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; whether the connection lives on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"(?i)content-length: *(\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        _, path, _ = head.split(" ", 2)
        who = path.split("/")[1]
        if not path.endswith("/chat/completions"):
            answer = document({"object": "list", "data": [{"id": "scripted-model", "object": "model"}]})
        else:
            answer = self._answer(who, json.loads(body))
        return await _send(writer, answer)

    def _answer(self, who: str, body: Json) -> Answer:
        users = [json.dumps(one["content"]) for one in body["messages"] if one["role"] == "user"]
        named = next(found[1] for text in users if (found := re.search(r"behaviour ([\w-]+)", text)))
        turn = 2 if any(one["role"] == "tool" for one in body["messages"]) else 1
        self.requests[who, named] += 1
        self.bodies.setdefault((who, named), []).append(body)
        asked = Asked(body, turn, self._asked[who, named, turn])
        self._asked[who, named, turn] += 1
        return self.behaviours[named](asked)


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    headers = dict(answer.headers)
    if answer.ends == "length":
        headers["content-length"] = str(sum(map(len, answer.pieces)))
    elif answer.ends in ("chunked", "cut"):
        headers["transfer-encoding"] = "chunked"
    else:
        headers["connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"HTTP/1.1 {answer.status} Status\r\n{lines}\r\n".encode())
    for piece in answer.pieces:
        if answer.pause:
            await writer.drain()
            await asyncio.sleep(answer.pause)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.ends in ("chunked", "cut") else piece)
    if answer.ends == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return answer.ends in ("chunked", "length")
