"""A plain HTTP client for the tests: sends a chat request and keeps everything that came back, broken or not."""

import io
import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from opencode_env.scripted_model import ScriptedModel

from tests.support.waiting import PATIENCE_SECONDS

Body = dict[str, Any]


@dataclass
class Received:
    """What arrived: the status, the headers, the bytes, and how the connection broke, if it did."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""
    broken: aiohttp.ClientError | None = None

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.raw)

    @property
    def events(self) -> list[str]:
        """The data of the server-sent events."""
        return [event.removeprefix("data: ") for event in self.raw.decode().split("\n\n") if event]

    @property
    def chunks(self) -> list[Body]:
        """The events that are JSON."""
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def finish_reasons(self) -> list[str]:
        """The finish reasons of the chunks."""
        return [c["finish_reason"] for chunk in self.chunks for c in chunk.get("choices", []) if c["finish_reason"]]

    def joined(self, name: str) -> str:
        """A text field of the deltas, joined."""
        deltas = [choice["delta"] for chunk in self.chunks for choice in chunk.get("choices", [])]
        return "".join(delta.get(name) or "" for delta in deltas)


def user(text: str) -> Body:
    """A user message."""
    return {"role": "user", "content": text}


def assistant(text: str, *calls: Body) -> Body:
    """An assistant message of the history."""
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls)} if calls else {})


async def send(
    model: ScriptedModel,
    *messages: Body,
    session: str | None = None,
    stream: bool = True,
    tools: tuple[str, ...] = (),
    model_name: str = "any",
    logprobs: bool = False,
) -> Received:
    """Send one chat request (by default streaming, with usage) and read until the end, whatever end it is."""
    body: Body = {"model": model_name, "messages": list(messages or (user("hello"),)), "stream": stream}
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    body |= {"logprobs": True} if logprobs else {}
    if tools:
        body["tools"] = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    headers = {"content-type": "application/json"} | ({} if session is None else {"X-Session-ID": session})
    received = Received()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS)) as http:
        try:
            data = io.BytesIO(json.dumps(body).encode())
            async with http.post(f"{model.base_url}/chat/completions", data=data, headers=headers) as response:
                received.status = response.status
                received.headers = {name.lower(): value for name, value in response.headers.items()}
                async for part in response.content.iter_any():
                    received.raw += part
        except aiohttp.ClientError as error:
            received.broken = error
    return received
