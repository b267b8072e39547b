"""A call among others of its rollout: its turn, or the call that it repeats, and the history that it goes on with."""

from verifiers.v1.errors import ProviderError
from verifiers.v1.interception.server import RETRY_COUNT_HEADER, is_retried_request

from opencode_env.cli_agent.interception.call import Call


async def take_turn(call: Call) -> None:
    """Wait for the turn of a main call. Changes `joined`, and `headers` so that the engine knows a retry."""
    gateway = call.gateway
    if call.sub is not None:
        return
    if call.caller.own:  # what a program asks says nothing of how the agent's own run ends
        gateway.main_request(None)
    if await gateway.calls.let_through(call.request, call.key, call.server_body, call.until_end):
        call.joined = gateway.calls.reserves
        if call.key is None and not is_retried_request(call.request.headers):
            call.headers.append((RETRY_COUNT_HEADER, "1"))
    if not call.caller.own:
        call.until_end.enter_context(gateway.load.carrying())


def require_turn(call: Call) -> None:
    """Refuse to sample for a call that has no turn of its own.

    Raises:
        ProviderError: it has joined a call that failed meanwhile; it may be sent again.
    """
    if call.joined:
        raise ProviderError("server error: the call that this one repeats has failed", status_code=503)


def keep_turn(call: Call) -> None:
    """Begin to keep the turn, where that is due: not of a call that a limit or the task refuses. Changes `keeping`."""
    turns = call.gateway.turns
    if turns is not None and call.sub is None and call.caller.own:
        turns.asked(call)


def mask(call: Call) -> None:
    """Mask the recorded answer, where the rollout goes on from a kept turn in another way and nothing of it trains."""
    if call.gateway.turns is not None:
        call.gateway.turns.recorded(call.gateway.main.trace, None if call.sub is None else call.sub.trace)


def count(call: Call) -> None:
    """Count the recorded call against the budgets of its seat; a failed main call is paid for like a refused one."""
    assert call.session is not None
    assert call.record is not None
    gateway, nodes = call.gateway, call.session.trace.nodes
    if call.sub is not None:
        call.sub.session.tally.add(call.record, nodes)
        return
    gateway.calls.tally.add(call.record, nodes)
    if call.record.node is None:
        gateway.cpu.charge_refusal()
        position = len(call.session.trace.calls) - 1
        if call.key is not None and call.caller.own:
            gateway.keys[position] = call.key
        if call.wait:
            gateway.waits[position] = call.wait


def weigh(call: Call) -> None:
    """Count what the recorded call has left on its trace, and cut what a program of the agent's said at length."""
    assert call.session is not None
    assert call.record is not None
    # What may be trained on stands beside its tokens, of which an engine's window takes no more.
    sub = call.sub is not None
    program = not sub and not call.trains and not call.gateway.program.is_own(call.caller)
    call.gateway.left.take(call.session.trace, call.record, sub=sub, program=program)


async def find_history(call: Call) -> None:
    """Have the call's history restored when it is read. Changes `history` and `asked`. What the agent's programs ask
    has no history of its own, and is read as it came."""
    history = call.gateway.histories[0 if call.sub is None else 1]
    if history is None or not call.caller.own:
        return
    call.history, call.asked = history, (call.conversation, call.server_body)
    call.until_end.enter_context(history.requests.serving(call.asked))


def commit(call: Call) -> None:
    """Take up the answer of the recorded call."""
    if call.history is not None and call.asked is not None and call.record is not None and call.record.node is not None:
        call.history.requests.committed(call.record.node, call.asked, call.last_message)
        call.history.forks.committed(call.record.node, call.conversation)
