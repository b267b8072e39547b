"""A stream that broke is a failed call, never a turn of the trace; OpenCode's are in `test_broken_delivery.py`."""

import pytest
from opencode_env.cli_agent.interception.answer_steps import require_whole
from verifiers.v1.errors import ProviderError

from tests.gateway.calls import call_of, session

TEXT = b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": null}]}\n\n'
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


async def read(*events: bytes) -> list[bytes]:
    return require_whole(call_of(session()), list(events))


async def test_a_whole_stream_passes_unchanged() -> None:
    assert await read(b": keepalive\n\n", TEXT, END, DONE) == [b": keepalive\n\n", TEXT, END, DONE]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((TEXT, DONE), "without a finish reason"),
        ((TEXT, b'data: {"error": {"message": "overloaded"}}\n\n', DONE), "overloaded"),
        ((), "without a finish reason"),
    ],
)
async def test_a_broken_stream_fails(events: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(ProviderError, match=message):
        await read(*events)
