"""A request's arrival: who makes it, in which conversation, and what holds it back: its rollout's share of the serving
process, of requests at once, and of memory."""

from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.own_calls import MARK_HEADER, note_program_call


async def identify_caller(call: Call) -> None:
    """Tell the agent's own program from the programs that it started. Needs the headers; changes `caller`, `key` and
    `conversation`. A failed call of a program is not left where verifiers looks for what ended the agent, and what it
    says of its conversation counts for nothing."""
    headers, main, echoes = call.request.headers, call.gateway.main, call.gateway.echoes
    call.caller = call.gateway.program.identify(headers.get(MARK_HEADER))
    call.key = headers.get(IDEMPOTENCY_KEY_HEADER)
    if call.caller.own and echoes is not None:
        call.conversation = headers.get(echoes.conversation_header)
    before = main.error

    def leave_no_failure() -> None:
        if not call.gateway.program.is_own(call.caller):
            main.error = before

    call.until_end.callback(leave_no_failure)


def record_caller(call: Call) -> None:
    """Note on the main trace that a program of the agent made the recorded call."""
    if call.sub is None and not call.gateway.program.is_own(call.caller):
        note_program_call(call.gateway.main.trace)


async def open_request(call: Call) -> None:
    """Take the request up when it is the rollout's turn to be worked for.

    Raises:
        RequestRefused: the rollout has too many open.
    """
    await call.gateway.open_request(call.until_end)


async def wait_aside(call: Call) -> None:
    """Wait for one of the rollout's few places for requests that are not model calls."""
    await call.gateway.aside.acquire()
    call.until_end.callback(call.gateway.aside.release)


async def count_as_load(call: Call) -> None:
    """Count the request as a program's, where those are known: the agent's own makes model calls only."""
    if call.gateway.program.is_known:
        call.until_end.enter_context(call.gateway.load.carrying())


async def hold_memory(call: Call) -> None:
    """Wait until the rollout may hold one more body of that size; the engine keeps what it parsed as long."""
    largest, request = call.gateway.config.max_body or 0, call.request
    # A packed body may unpack to anything.
    size = None if "Content-Encoding" in request.headers else request.content_length
    await call.gateway.memory.hold(min(largest, size or largest), call.until_end)
