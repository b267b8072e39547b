"""Logprobs of an evaluation endpoint's answers, kept on the trace of the seat that asked for them.

verifiers passes them on to the agent and forgets them. A seat asks with its sampling (`--sampling.logprobs`); what an
agent's programs ask for does not get here, and the agent is not told them. Invariant: an entry is of the very call
whose answer its node holds, has one logprob for each token that the endpoint reported, in the order of sampling, and
says how many were sampled: some endpoints leave out those of what their tool parser holds back in a stream.
"""

import logging
from contextlib import suppress
from typing import Any

from verifiers.v1.dialects.base import parse_sse_event
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.traces import OF_THE_RUN

RECORD = "logprobs"
"""Key in a trace's `info`: for each answer its node, its tokens as texts, their logprobs, and `completion_tokens`, as
many as its usage counts (None: it does not); absent without any."""

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")


def take_from_answer(call: Call, response: Response) -> Response:
    """Take the logprobs out of an answer. Changes `logprobs`."""
    if _is_asked_for(call):
        collect(call, response.raw)
    return response


def take_from_stream(call: Call, events: list[bytes]) -> list[bytes]:
    """Take the logprobs out of the events of a chat completion. Changes `logprobs`."""
    if call.is_chat and _is_asked_for(call):
        for event in events:
            if b'"logprobs"' in event:
                collect(call, parse_sse_event(event))
    return events


def _is_asked_for(call: Call) -> bool:
    # Asking pydantic for what is not there is slow.
    sampling = None if call.session is None else call.session.ctx.sampling
    return sampling is not None and "logprobs" in sampling.model_fields_set and bool(getattr(sampling, "logprobs", 0))


def collect(call: Call, answer: Any) -> None:
    """Take the logprobs out of an answer, or out of one event of it; what cannot be read is left out."""
    if not isinstance(answer, dict):
        return
    for choice in answer.get("choices") or ():
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            reported = choice.pop("logprobs", None) or {}
            entries = [*(reported.get("content") or ()), *(reported.get("refusal") or ())]
            call.logprobs += [(str(entry["token"]), float(entry["logprob"])) for entry in entries]


def keep(call: Call) -> None:
    """Put what was heard of the recorded call on its trace, if it was answered."""
    if call.session is None or call.record is None or call.record.node is None or not _is_asked_for(call):
        return
    usage = None if call.estimated else call.record.usage
    sampled = None if usage is None else usage.completion_tokens
    if call.logprobs:
        tokens, logprobs = zip(*call.logprobs, strict=True)
        entry = {"node": call.record.node, "tokens": list(tokens), "logprobs": list(logprobs)}
        call.session.trace.info.setdefault(RECORD, []).append({**entry, "completion_tokens": sampled})
    endpoint = call.session.ctx.client.base_url
    if sampled is not None and len(call.logprobs) < sampled and endpoint not in _told:
        _told.add(endpoint)
        told = (
            "the endpoint gave logprobs of %d of an answer's %d tokens, as some do in a stream with calls: "
            "--env.gateway.ask-streamed false asks for whole answers"
        )
        logger.warning(told, len(call.logprobs), sampled, extra=OF_THE_RUN)


_told: set[str] = set()
"""The endpoints that were warned of in this process."""
