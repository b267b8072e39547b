"""What holds a request back: its rollout's share of the serving process, of requests at once, and of memory."""

from opencode_env.cli_agent.interception.call import Call


async def open_request(call: Call) -> None:
    """Take the request up when it is the rollout's turn to be worked for.

    Raises:
        RequestRefused: the rollout has too many open.
    """
    await call.until_end.enter_async_context(call.gateway.open_request())


async def wait_aside(call: Call) -> None:
    """Wait for one of the rollout's few places for requests that are no model calls."""
    await call.until_end.enter_async_context(call.gateway.aside)


async def count_as_load(call: Call) -> None:
    """Count the request as a program's, where those are known: the agent's own makes model calls only."""
    if call.gateway.program.is_known:
        call.until_end.enter_context(call.gateway.load.carrying())


async def hold_memory(call: Call) -> None:
    """Wait until the rollout may hold one more body of that size; the engine keeps what it parsed as long."""
    largest, request = call.gateway.config.max_body or 0, call.request
    # A packed body may unpack to anything.
    size = None if "Content-Encoding" in request.headers else request.content_length
    await call.until_end.enter_async_context(call.gateway.memory.hold(min(largest, size or largest)))
