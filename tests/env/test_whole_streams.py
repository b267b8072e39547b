"""A stream that broke is a failed call, never a turn of the trace."""

import pytest
from opencode_env.cli_agent.interception import role_interception
from opencode_env.cli_agent.interception.steps.answer import require_whole
from opencode_env.scripted_model import Reply
from verifiers.v1.errors import ProviderError
from verifiers.v1.interception import InterceptionServerConfig

from tests.gateway.calls import call_of, session
from tests.support.places import Confined
from tests.support.replies import bash, fault
from tests.support.rollouts import play

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


@pytest.mark.opencode
@pytest.mark.usefixtures("sandboxes")
async def test_broken_turns_that_are_tried_again_leave_one_branch() -> None:
    kinds = ("sse_error", "no_finish", "malformed_sse")
    broken = [bash(f"echo {kind}").model_copy(update={"faults": fault(kind, attempts=1)}) for kind in kinds]
    async with role_interception(InterceptionServerConfig()) as server:
        played = await play(Confined(), [*broken, Reply(text="all is done now")], interception=server)
    trace = played.trace
    assert trace.ok, trace.errors
    assert (trace.num_turns, trace.num_branches) == (4, 1)
    assert [call.error is None for call in trace.calls] == [False, True] * 3 + [True]
    assert trace.last_reply == "all is done now"
