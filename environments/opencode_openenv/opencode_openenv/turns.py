"""A rollout's model calls as turns, and as the lines of a log."""

from collections.abc import Iterator, Mapping
from typing import Any

from opencode_env.cli_agent.interception.kept_logprobs import RECORD
from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.traces import AnyTrace
from verifiers.v1.trace import ModelCall

from opencode_openenv.result import RolloutTurn
from opencode_openenv.training_trace import Role

_TAIL_CHARS = 2000
_MESSAGE_CHARS = 500


def turns_of(traces: Mapping[Role, AnyTrace]) -> list[RolloutTurn]:
    """The agent's own calls and its sub calls in order of their end; those that its programs made as if they were it
    are not turns."""
    calls = [(call, role, trace) for role, trace in traces.items() for call in own_calls(trace)]
    calls.sort(key=lambda entry: entry[0].time.end)
    reported = {role: {entry["node"]: entry for entry in trace.info.get(RECORD, ())} for role, trace in traces.items()}
    return [_turn(trace, number, role, call, reported[role]) for number, (call, role, trace) in enumerate(calls, 1)]


def _turn(
    trace: AnyTrace, number: int, role: Role, call: ModelCall, reported: Mapping[int, Mapping[str, list[Any]]]
) -> RolloutTurn:
    turn = RolloutTurn(
        turn=number,
        role=role,
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


def call_log(traces: Mapping[Role, AnyTrace]) -> str:
    """The last calls, a line each, at most 2,000 characters."""
    return "\n".join(_lines(traces))[-_TAIL_CHARS:]


def _lines(traces: Mapping[Role, AnyTrace]) -> Iterator[str]:
    calls = [(call, role) for role, trace in traces.items() for call in trace.calls]
    calls.sort(key=lambda entry: entry[0].time.end)
    for number, (call, role) in enumerate(calls, 1):
        if call.error:
            said = f"{call.error.status_code or ''} {call.error.type}: {call.error.message[:200]}"
        else:
            said = f"200 {call.finish_reason}"
        yield f"{number} {role} {call.endpoint} {call.time.duration:.3f} s {said}".replace("\n", " ")
