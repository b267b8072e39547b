"""Who makes a call, and in which conversation."""

from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.own_calls import MARK_HEADER, note_program_call


async def identify_caller(call: Call) -> None:
    """Tell the agent's own program from the programs that it started.

    Needs the headers; changes `caller`, `key` and `conversation`. A failed call of a program is not left where
    verifiers looks for what ended the agent, and what it says of its conversation counts for nothing.
    """
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
