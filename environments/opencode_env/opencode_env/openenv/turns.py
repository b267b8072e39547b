"""A rollout's model calls as turns, and as the lines of a log."""

from collections.abc import Iterator

from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.interception.kept_logprobs import RECORD
from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.openenv.result import RolloutTurn

_TAIL_CHARS = 2000
_MESSAGE_CHARS = 500


def turns_of(trace: AnyTrace) -> list[RolloutTurn]:
    """The agent's own calls in order of their end; those of programs that it started are none of its turns."""
    reported = {entry["node"]: entry for entry in trace.info.get(RECORD, ())}
    return [_turn(trace, number, call, reported) for number, call in enumerate(own_calls(trace), 1)]


def _turn(trace: AnyTrace, number: int, call: ModelCall, reported: dict[int, dict[str, list[str]]]) -> RolloutTurn:
    turn = RolloutTurn(
        turn=number,
        finish_reason=call.finish_reason,
        latency_s=round(call.time.duration, 3),
        timestamp=call.time.start,
        upstream_status=call.error.status_code if call.error else 200,
    )
    if call.error is not None:
        turn.upstream_error = {"type": call.error.type, "message": call.error.message[:_MESSAGE_CHARS]}
    if call.node is None:
        return turn
    node = trace.nodes[call.node]
    if len(node.token_ids):
        pairs = zip(node.token_ids, node.mask, strict=True)
        turn.completion_token_ids = [int(token) for token, sampled in pairs if sampled]
        turn.per_token_logps = [float(value) for value in node.logprobs]
    elif entry := reported.get(call.node):
        turn.completion_tokens = list(entry["tokens"])
        turn.per_token_logps = [float(value) for value in entry["logprobs"]]
    return turn


def call_log(trace: AnyTrace) -> str:
    """The last calls, a line each, at most 2,000 characters."""
    return "\n".join(_lines(trace))[-_TAIL_CHARS:]


def _lines(trace: AnyTrace) -> Iterator[str]:
    for number, call in enumerate(trace.calls, 1):
        if call.error:
            said = f"{call.error.status_code or ''} {call.error.type}: {call.error.message[:200]}"
        else:
            said = f"200 {call.finish_reason}"
        yield f"{number} {call.endpoint} {call.time.duration:.3f} s {said}".replace("\n", " ")
