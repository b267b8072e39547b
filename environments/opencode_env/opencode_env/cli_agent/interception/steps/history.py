"""A call's history: which request of its conversation it is, and the answer that it gets there."""

from opencode_env.cli_agent.interception.call import Call


async def find_history(call: Call) -> None:
    """Have the call's history restored when it is read. Changes `history` and `asked`.

    What the agent's programs ask has no history of its own, and is read as it came.
    """
    history = call.gateway.histories[0 if call.sub is None else 1]
    if history is None or not call.caller.own:
        return
    call.history, call.asked = history, (call.conversation, call.identity)
    call.until_end.enter_context(history.requests.serving(call.asked))


def commit(call: Call) -> None:
    """Take up the answer of the recorded call."""
    if call.history is not None and call.asked is not None and call.record is not None and call.record.node is not None:
        call.history.requests.committed(call.record.node, call.asked, call.last_message)
        call.history.forks.committed(call.record.node, call.conversation)
