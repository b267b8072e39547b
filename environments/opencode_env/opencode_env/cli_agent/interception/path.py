"""The path of a model call: the steps that a `Call` takes, in their order. A new step is a function and a line here;
one that only some rollouts need, a feature adds to theirs (`Gateway.add_step`).

Between `REQUEST` and `ASK` stands verifiers' server: it imposes the seat's model and sampling, has the request read
(`endpoint.py`, where a history is restored as it was sampled), asks limits and hooks of the task, and finds the
request in the trace's graph. Between `ANSWER` or `STREAM` and `RECORD` it commits the answer to that graph.
"""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception import answer_steps as answer
from opencode_env.cli_agent.interception import chat_answers, window
from opencode_env.cli_agent.interception import request_steps as request
from opencode_env.cli_agent.interception.gateway import Call

REQUEST: Sequence[Callable[[Call], Awaitable[None]]] = (
    request.identify_caller,
    request.open_request,
    request.require_text,
    request.choose_seat,
    request.require_format,
    request.hold_memory,
    request.read,
    request.choose_summariser,
    request.choose_headers,
    request.take_place,
    request.find_history,
)
"""From what came to what goes on."""

ASK: Sequence[Callable[[Call], None]] = (request.require_place,)
"""Before the endpoint is asked."""

ANSWER: Sequence[Callable[[Call, Response], Response]] = (
    answer.require_evidence,
    answer.mask_answer,
    answer.take_logprobs,
    answer.make_calls_sound,
)
"""From what the endpoint answered to what the agent gets."""

STREAM: Sequence[Callable[[Call, list[bytes]], list[bytes]]] = (
    answer.mask_events,
    answer.require_stream,
    answer.whole_texts,
    answer.take_logprobs_from_stream,
    answer.require_whole,
    answer.in_one_event,
)
"""From the stream that the endpoint answered with to the one that the agent gets."""

FAILURE: Sequence[Callable[[Call, Exception], Exception]] = (
    answer.take_wait,
    answer.as_failed_call,
    answer.note_unusable,
    window.as_full_window,
    answer.mask_failure,
    answer.shorten,
    answer.say_that_it_may_pass,
)
"""From how the endpoint failed to what trace, log and agent are told."""

RECORD: Sequence[Callable[[Call], None]] = (
    request.bring_back,
    request.commit,
    answer.keep_logprobs,
    chat_answers.note_forms,
    request.count,
    window.note_prompt,
    window.note_fill,
    window.require_gain,
    request.weigh,
    request.record_caller,
)
"""After verifiers' server has recorded the call."""

RESPONSE: Sequence[Callable[[Call, web.StreamResponse], web.StreamResponse]] = (
    answer.end_by_its_answer,
    answer.say_that_it_is_hopeless,
    answer.say_when,
)
"""On the path back to the agent."""

BESIDE: Sequence[Callable[[Call], Awaitable[None]]] = (
    request.open_request,
    request.require_text,
    request.choose_side,
    request.wait_aside,
    request.count_as_load,
    request.require_format,
    request.hold_memory,
    request.read,
    request.choose_headers,
)
"""Of a request to the endpoint that is not a model call, such as one for a count of tokens."""

MODELS: Sequence[Callable[[Call], Awaitable[None]]] = (
    request.open_request,
    request.wait_aside,
    request.count_as_load,
)
"""Of a request for the list of models."""

TOOL: Sequence[Callable[[Call], Awaitable[None]]] = (request.open_request, request.wait_aside, request.read_json)
"""Of a question about a tool call."""
