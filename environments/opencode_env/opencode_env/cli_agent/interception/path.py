"""The path of a model call: the steps that a `Call` takes, in their order. A new step is a module and a line here.

Between `REQUEST` and `ASK` stands verifiers' server: it imposes the seat's model and sampling, has the request read
(`served_dialect.py`, where a history is restored as it was sampled), asks limits and hooks of the task, and finds the
request in the trace's graph. Between `ANSWER` or `STREAM` and `RECORD` it commits the answer to that graph.
"""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception import chat_answers, kept_logprobs
from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.steps import answer, arrival, body, turn
from opencode_env.cli_agent.interception.training_client import require_evidence
from opencode_env.cli_agent.interception.window import as_full_window, note_prompt

REQUEST: Sequence[Callable[[Call], Awaitable[None]]] = (
    arrival.identify_caller,
    arrival.open_request,
    body.require_text,
    arrival.choose_seat,
    body.require_format,
    arrival.hold_memory,
    body.read,
    body.choose_headers,
    turn.take_turn,
    turn.find_history,
)
"""From what came to what goes on."""

ASK: Sequence[Callable[[Call], None]] = (turn.require_turn, turn.keep_turn)
"""Before the endpoint is asked."""

ANSWER: Sequence[Callable[[Call, Response], Response]] = (
    require_evidence,
    answer.mask_answer,
    kept_logprobs.take_from_answer,
    answer.make_calls_sound,
)
"""From what the endpoint answered to what the agent gets."""

STREAM: Sequence[Callable[[Call, list[bytes]], list[bytes]]] = (
    answer.mask_events,
    answer.require_stream,
    answer.whole_texts,
    kept_logprobs.take_from_stream,
    answer.require_whole,
    answer.in_one_event,
)
"""The same, where it answers with a stream."""

FAILURE: Sequence[Callable[[Call, Exception], Exception]] = (
    answer.take_wait,
    answer.as_failed_call,
    as_full_window,
    answer.mask_failure,
    answer.shorten,
    answer.say_that_it_may_pass,
)
"""From how the endpoint failed to what trace, log and agent are told."""

RECORD: Sequence[Callable[[Call], None]] = (
    turn.commit,
    turn.mask,
    kept_logprobs.keep,
    chat_answers.note_forms,
    turn.count,
    note_prompt,
    turn.weigh,
    arrival.record_caller,
)
"""After verifiers' server has recorded the call."""

RESPONSE: Sequence[Callable[[Call, web.StreamResponse], web.StreamResponse]] = (
    answer.end_by_its_answer,
    answer.say_that_it_is_hopeless,
    answer.say_when,
)
"""On the path back to the agent."""

BESIDE: Sequence[Callable[[Call], Awaitable[None]]] = (
    arrival.open_request,
    body.require_text,
    arrival.choose_side,
    arrival.wait_aside,
    arrival.count_as_load,
    body.require_format,
    arrival.hold_memory,
    body.read,
    body.choose_headers,
)
"""Of a request to the endpoint that is not a model call, such as one for a count of tokens."""

MODELS: Sequence[Callable[[Call], Awaitable[None]]] = (arrival.open_request, arrival.wait_aside, arrival.count_as_load)
"""Of a request for the list of models."""

TOOL: Sequence[Callable[[Call], Awaitable[None]]] = (arrival.open_request, arrival.wait_aside, body.read_json)
"""Of a question about a tool call."""
