"""What endpoints do, as public reports tell it: one row each, played against the bare binary and against ours."""
# ruff: noqa: E501 - the words of engines

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass

from tests.endpoints.server import (
    COMMAND,
    USAGE,
    USAGE_EVENT,
    Answer,
    Asked,
    Behaviour,
    Json,
    call,
    chunk,
    document,
    events,
    sse,
)


@dataclass(frozen=True)
class Row:
    """One behaviour."""

    name: str
    text: str
    """What the endpoint does, and who is known for it."""
    behaviour: Behaviour
    says: str = ""
    """For one that fails: an expression that our message holds."""
    slow: bool = False
    """Whether the bare binary waits for more than a few seconds."""
    scored: bool = False
    """For one that fails: whether that is the policy's, scored as it is."""
    stricter: bool = False
    """Whether ours takes it for a failure where the bare binary goes on: nothing says that the answer is whole."""


ROWS: list[Row] = []


def stream(name: str, text: str, change: Callable[[int], Answer], says: str = "", **more: bool) -> None:
    """A row whose answers are streams that depend on the turn alone."""
    ROWS.append(Row(name, text, lambda asked: change(asked.turn), says, **more))


def each(event: Callable[[Json], Json]) -> Callable[[int], Answer]:
    """Ordinary streams, each event changed."""
    return lambda turn: sse([event(dict(one)) for one in events(turn)])


def with_calls(*calls: Json, finish: object = ...) -> Callable[[int], Answer]:
    return lambda turn: sse(events(turn, *calls, finish=finish))


def deltas(*calls: Json) -> Callable[[int], Answer]:
    """A tool call in several deltas."""

    def made(turn: int) -> Answer:
        if turn == 2:
            return sse(events(2))
        return sse(
            [
                chunk({"role": "assistant"}),
                *(chunk({"tool_calls": [one]}) for one in calls),
                chunk({}, "tool_calls"),
                USAGE_EVENT,
            ]
        )

    return made


def once(fault: Answer) -> Behaviour:
    """A fault at the first request, and sound answers from then on."""
    return lambda asked: sse(events(asked.turn)) if asked.before or asked.turn == 2 else fault


def then(fault: Answer) -> Behaviour:
    """A sound first answer, and a fault at each later request."""
    return lambda asked: sse(events(1)) if asked.turn == 1 else fault


def always(fault: Answer) -> Behaviour:
    return lambda asked: fault


def error(message: str, status: int = 400, **fields: object) -> Answer:
    return document({"error": {"message": message, "type": "invalid_request_error", **fields}}, status)


ARGUMENTS = json.dumps({"command": COMMAND, "description": "write"})
HALVES = ARGUMENTS[:10], ARGUMENTS[10:]
OTHER = json.dumps({"command": "printf also > also.txt", "description": "write"})

stream("sound", "an ordinary stream", lambda turn: sse(events(turn)))

# Usage, ids, times.
stream(
    "no-usage",
    "no usage, though it was asked for (older llama.cpp, proxies)",
    lambda turn: sse(events(turn, usage=None)),
)
stream("usage-null", "`usage` null in each event", each(lambda one: one | {"usage": None}))
stream(
    "usage-partial",
    "`usage` with `prompt_tokens` alone",
    lambda turn: sse(events(turn, usage=chunk(choices=[], usage={"prompt_tokens": 100}))),
)
stream(
    "usage-total",
    "`usage` with `total_tokens` alone",
    lambda turn: sse(events(turn, usage=chunk(choices=[], usage={"total_tokens": 110}))),
)
stream(
    "usage-nulls",
    "`usage` whose counts are null",
    lambda turn: sse(events(turn, usage=chunk(choices=[], usage=dict.fromkeys(USAGE)))),
)
stream(
    "usage-each",
    "`usage` in each event, growing (SGLang, vLLM `continuous_usage_stats`)",
    each(lambda one: one | {"usage": USAGE}),
)
stream(
    "usage-with-finish",
    "`usage` in the event of the finish reason (Gemini, Groq)",
    lambda turn: sse([*events(turn, usage=None)[:-1], events(turn, usage=None)[-1] | {"usage": USAGE}]),
)
stream(
    "usage-details",
    "`usage` with details that are null",
    lambda turn: sse(
        events(
            turn,
            usage=chunk(choices=[], usage=USAGE | {"prompt_tokens_details": None, "completion_tokens_details": None}),
        )
    ),
)
stream(
    "usage-cost",
    "`usage` with cost and text fields of its own (OpenRouter)",
    lambda turn: sse(
        events(
            turn,
            usage=chunk(
                choices=[],
                usage=USAGE | {"cost": 0.01, "is_byok": False, "cost_details": {"upstream_inference_cost": None}},
            ),
        )
    ),
)
stream(
    "usage-text",
    "`usage` counts as text",
    lambda turn: sse(events(turn, usage=chunk(choices=[], usage={name: str(value) for name, value in USAGE.items()}))),
    says=r"usage|endpoint",
)
stream("id-null", "`id` null", each(lambda one: one | {"id": None}))
stream("id-missing", "no `id`", each(lambda one: {k: v for k, v in one.items() if k != "id"}))
stream("id-number", "`id` is a number", each(lambda one: one | {"id": 7}), says=r"id")
stream("model-null", "`model` null", each(lambda one: one | {"model": None}))
stream(
    "model-other", "another `model` than was asked for (routers)", each(lambda one: one | {"model": "other/model:free"})
)
stream("created-null", "`created` null", each(lambda one: one | {"created": None}))
stream("created-float", "`created` a float (transformers serve)", each(lambda one: one | {"created": 1700000000.25}))
stream("created-missing", "no `created`", each(lambda one: {k: v for k, v in one.items() if k != "created"}))
stream(
    "created-text",
    "`created` as text",
    each(lambda one: one | {"created": "2026-11-28T10:00:00Z"}),
    says=r"created|endpoint",
)
stream("object-missing", "no `object`", each(lambda one: {k: v for k, v in one.items() if k != "object"}))
stream(
    "further-fields",
    "`system_fingerprint`, `service_tier`, `provider`, `x_groq`",
    each(
        lambda one: (
            one | {"system_fingerprint": None, "service_tier": "default", "provider": "X", "x_groq": {"id": "r"}}
        )
    ),
)

# How a stream ends.
stream(
    "no-done",
    "no `[DONE]` behind the finish reason, body whole (transformers serve, ik_llama.cpp)",
    lambda turn: sse(events(turn), done=False),
)
stream(
    "no-done-closed",
    "no `[DONE]`, and the connection's end is the body's",
    lambda turn: sse(events(turn), done=False, ends="closed"),
    says=r"before its terminal event",
    stricter=True,
    slow=True,
)
stream(
    "no-finish",
    "`[DONE]` without a finish reason",
    lambda turn: sse(events(turn, finish=None)),
    says=r"finish reason|without end",
)
stream("length-known", "the stream has a Content-Length", lambda turn: sse(events(turn), ends="length"))
stream(
    "closed", "no chunked encoding: the connection's end is the body's", lambda turn: sse(events(turn), ends="closed")
)
stream("one-piece", "all events in one piece", lambda turn: Answer([b"".join(sse(events(turn)).pieces)]))
stream(
    "by-byte", "one byte at a time", lambda turn: Answer([bytes([one]) for one in b"".join(sse(events(turn)).pieces)])
)
stream("slow", "half a second before each event", lambda turn: sse(events(turn), pause=0.5))
stream(
    "after-done",
    "a comment behind `[DONE]`",
    lambda turn: sse([*events(turn), "data: [DONE]\n\n", ": bye\n\n"], done=False),
)

# The form of events.
stream(
    "comments",
    "comments that keep the connection alive (OpenRouter: `: OPENROUTER PROCESSING`)",
    lambda turn: sse([": OPENROUTER PROCESSING\n\n", *events(turn)[:1], ": ping\n\n", *events(turn)[1:]]),
)
stream(
    "crlf",
    "lines end with CR LF",
    lambda turn: Answer([piece.replace(b"\n", b"\r\n") for piece in sse(events(turn)).pieces]),
)
stream(
    "no-space",
    "no space behind `data:`",
    lambda turn: Answer([piece.replace(b"data: ", b"data:") for piece in sse(events(turn)).pieces]),
)
stream(
    "event-lines",
    "an `event:` and an `id:` line before each `data:`",
    lambda turn: Answer([b"event: message\nid: 1\n" + piece for piece in sse(events(turn)).pieces]),
)
stream(
    "byte-order-mark",
    "a byte order mark at the beginning",
    lambda turn: Answer([b"\xef\xbb\xbf", *sse(events(turn)).pieces]),
)
stream(
    "split-letter",
    "pieces end within a letter",
    lambda turn: (
        lambda body: (
            Answer([body[: body.index(b"\xc3") + 1], body[body.index(b"\xc3") + 1 :]])
            if b"\xc3" in body
            else Answer([body])
        )
    )(
        b"".join(
            piece if b"\\u" not in piece else piece.decode().encode().replace(b"\\u00e9", "é".encode())
            for piece in sse(events(turn, text="caf\u00e9")).pieces
        )
    ),
)
stream(
    "type-json",
    "the stream's content type is application/json",
    lambda turn: sse(events(turn), headers={"content-type": "application/json"}),
)
stream(
    "type-charset",
    "the content type has a charset",
    lambda turn: sse(events(turn), headers={"content-type": "text/event-stream; charset=utf-8"}),
)
stream("no-type", "no content type", lambda turn: sse(events(turn), headers={}))
stream(
    "gzip",
    "the body is compressed",
    lambda turn: Answer(
        [gzip.compress(b"".join(sse(events(turn)).pieces))],
        headers={"content-type": "text/event-stream", "content-encoding": "gzip"},
        ends="length",
    ),
)
stream(
    "first-without-choices",
    "the first event has no choices (Azure: `prompt_filter_results`)",
    lambda turn: sse([chunk(choices=[], prompt_filter_results=[{"prompt_index": 0}]), *events(turn)]),
)
stream(
    "choices-null",
    "an event whose `choices` is null",
    lambda turn: sse([*events(turn)[:-1], chunk(choices=None, usage=USAGE)]),
    says=r"choices|endpoint|stream",
)
stream(
    "choices-missing",
    "the event of `usage` has no `choices`",
    lambda turn: sse([*events(turn)[:-1], chunk(choices=..., usage=USAGE)]),
    says=r"choices|endpoint|stream",
)
stream(
    "delta-null",
    "`delta` null in the event of the finish reason",
    lambda turn: sse(
        [{**one, "choices": [{**c, "delta": c["delta"] or None} for c in one["choices"]]} for one in events(turn)]
    ),
)
stream(
    "delta-missing",
    "no `delta` in the event of the finish reason",
    lambda turn: sse(
        [
            {**one, "choices": [{k: v for k, v in c.items() if k != "delta" or v} for c in one["choices"]]}
            for one in events(turn)
        ]
    ),
)
stream(
    "logprobs-null",
    "`logprobs` null in each choice",
    each(lambda one: one | {"choices": [c | {"logprobs": None, "refusal": None} for c in one["choices"]]}),
)
stream(
    "role-each",
    "`role` in each delta (llama.cpp, Gemini)",
    each(lambda one: one | {"choices": [c | {"delta": {"role": "assistant", **c["delta"]}} for c in one["choices"]]}),
)
stream(
    "nulls",
    "null for each field of a delta that is not used (vLLM, Mistral)",
    each(
        lambda one: (
            one
            | {
                "choices": [
                    c
                    | {
                        "delta": {
                            "content": None,
                            "tool_calls": None,
                            "function_call": None,
                            "refusal": None,
                            **c["delta"],
                        }
                    }
                    for c in one["choices"]
                ]
            }
        )
    ),
)
stream(
    "second-choice",
    "events of a second choice, which nobody asked for",
    lambda turn: sse(
        [chunk(choices=[{"index": 1, "delta": {"content": "other"}, "finish_reason": None}]), *events(turn)]
    ),
)

# Calls of tools.
stream("index-missing", "a call without `index` (Ollama, Gemini)", with_calls(call(index=...)))
stream("index-null", "a call whose `index` is null", with_calls(call(index=None)))
stream("parallel", "two calls with indexes", with_calls(call(), call(OTHER, index=1, id="call_2")))
stream(
    "parallel-missing",
    "two calls without `index` (Gemini, Ollama)",
    with_calls(call(index=...), call(OTHER, index=..., id="call_2")),
)
stream(
    "parallel-null",
    "two calls whose `index` is null",
    with_calls(call(index=None), call(OTHER, index=None, id="call_2")),
)
stream(
    "parallel-zero",
    "two calls with `index` 0 for both (older Ollama, LiteLLM with Gemini)",
    deltas(call(), call(OTHER, id="call_2")),
)
stream(
    "halves",
    "arguments in two deltas",
    deltas(call(HALVES[0]), call(HALVES[1], id=..., type=..., function={"arguments": HALVES[1]})),
)
stream(
    "halves-missing",
    "the same without `index`",
    deltas(call(HALVES[0], index=...), {"function": {"arguments": HALVES[1]}}),
)
stream("name-each", "id, type and name in each delta (Groq, older SGLang)", deltas(call(HALVES[0]), call(HALVES[1])))
stream(
    "name-null",
    "name null in the second delta (vLLM)",
    deltas(call(HALVES[0]), {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": HALVES[1]}}),
)
stream(
    "name-empty",
    "name and id empty in the second delta",
    deltas(
        call(HALVES[0]), {"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": HALVES[1]}}
    ),
)
stream(
    "name-first", "name first, arguments later", deltas(call(""), {"index": 0, "function": {"arguments": ARGUMENTS}})
)
stream(
    "arguments-object",
    "arguments as an object",
    with_calls(call({"command": COMMAND, "description": "write"})),
    says=r"arguments|stream|endpoint",
)
stream(
    "arguments-null",
    "arguments null in the first delta",
    deltas(call(function={"name": "bash", "arguments": None}), {"index": 0, "function": {"arguments": ARGUMENTS}}),
)
stream("id-of-call-missing", "a call without `id`", with_calls(call(id=...)), says=r"id")
stream("id-of-call-empty", "a call whose `id` is empty", with_calls(call(id="")))
stream("type-missing", "a call without `type`", with_calls(call(type=...)))
stream("type-empty", "a call whose `type` is empty (Mistral)", with_calls(call(type="")))
stream("finish-stop", "`finish_reason` stop behind a call (Ollama, LM Studio)", with_calls(call(), finish="stop"))
stream("finish-function-call", "`finish_reason` function_call", with_calls(call(), finish="function_call"))
stream(
    "finish-unknown",
    "`finish_reason` in words of its own (TGI: eos_token)",
    lambda turn: sse(events(turn, finish="eos_token")),
)
stream(
    "extra-content",
    "`extra_content` with a thought signature in a call (Gemini)",
    with_calls(call(extra_content={"google": {"thought_signature": "c2lnbg=="}})),
)
stream(
    "call-and-text",
    "text before a call",
    lambda turn: sse([chunk({"content": "I write it."}), *events(turn)]) if turn == 1 else sse(events(turn)),
)

# Text.
stream(
    "reasoning-content",
    "`reasoning_content` before the answer (DeepSeek, vLLM, SGLang)",
    lambda turn: sse([chunk({"reasoning_content": "Hm."}), *events(turn)]),
)
stream(
    "reasoning",
    "`reasoning` before the answer (OpenRouter, newer vLLM, Ollama)",
    lambda turn: sse([chunk({"reasoning": "Hm."}), *events(turn)]),
)
stream(
    "reasoning-details",
    "`reasoning_details` before the answer (OpenRouter)",
    lambda turn: sse(
        [
            chunk(
                {
                    "content": "",
                    "reasoning": "Hm.",
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "Hm.", "signature": None, "format": "unknown", "index": 0}
                    ],
                }
            ),
            *events(turn),
        ]
    ),
)
stream(
    "content-list",
    "`content` as a list of parts (Mistral)",
    lambda turn: sse(events(turn, text=[{"type": "text", "text": "done"}])),
    says=r"content|stream|endpoint",
)
stream(
    "odd-text",
    "control characters, a lone surrogate, U+2028 and emoji in the text",
    lambda turn: sse(events(turn, text="done \u0000\u0007 \u2028 \U0001f600 \ud83d")),
)
stream(
    "filtered",
    "finish reason content_filter",
    lambda turn: sse(events(turn, finish="content_filter")) if turn == 2 else sse(events(turn)),
    says=r"content_filter",
    scored=True,
)
stream(
    "cut-at-length",
    "finish reason length",
    lambda turn: sse(events(turn, finish="length")) if turn == 2 else sse(events(turn)),
)

# What is not a stream.
ROWS += [
    Row(
        "whole-completion",
        "a whole completion for a streamed request (cyllama)",
        lambda asked: document(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
                "usage": USAGE,
            }
        ),
        r"application/json",
    ),
    Row(
        "error-200",
        "status 200 with an error body",
        always(document({"error": {"message": "the model is being loaded", "code": 7}})),
        r"the model is being loaded",
    ),
    Row(
        "html-200",
        "status 200 with HTML (a login page, a proxy)",
        always(document("<html><body>Sign in to continue</body></html>", kind="text/html")),
        r"text/html",
    ),
    Row("empty-200", "status 200 without a body", always(Answer([b""], ends="length")), r"empty|no answer|without"),
    Row(
        "error-event",
        "an error as the first event of a stream (vLLM, OpenRouter)",
        always(sse([{"error": {"message": "engine is dead", "code": 400}}])),
        r"engine is dead",
    ),
    Row(
        "error-event-later",
        "an error event in mid-stream, then sound answers",
        once(sse([chunk({"content": "I "}), {"error": {"message": "overloaded", "code": 502}}])),
    ),
    # Refusals.
    Row(
        "key-401",
        "401: the key",
        always(error("Incorrect API key provided", 401)),
        r"401.*Incorrect API key|Incorrect API key.*401",
    ),
    Row(
        "payment-402",
        "402: no credits (OpenRouter)",
        always(error("Insufficient credits", 402)),
        r"Insufficient credits",
    ),
    Row("forbidden-403", "403: not allowed", always(error("Country not supported", 403)), r"Country not supported"),
    Row(
        "model-404",
        "404: no such model",
        always(error("The model `x` does not exist", 404, code="model_not_found")),
        r"does not exist",
    ),
    Row(
        "no-tools-400",
        "400: tools are not supported (Ollama, vLLM without a parser)",
        always(error('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')),
        r"enable-auto-tool-choice",
    ),
    Row(
        "max-completion-tokens",
        "400: `max_tokens` is not supported, use `max_completion_tokens` (OpenAI o-series, GPT-5)",
        lambda asked: (
            sse(events(asked.turn))
            if "max_tokens" not in asked.body
            else error(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                code="unsupported_parameter",
                param="max_tokens",
            )
        ),
        r"max_completion_tokens",
    ),
    Row(
        "html-404",
        "404 with HTML: a wrong path",
        always(document("<html>Not Found nginx</html>", 404, "text/html")),
        r"404",
    ),
    Row(
        "detail-422",
        "422 with FastAPI's `detail`",
        always(document({"detail": [{"loc": ["body", "tools"], "msg": "field not permitted"}]}, 422)),
        r"field not permitted",
    ),
    Row(
        "rate-limit-once",
        "429 with Retry-After, then sound answers",
        once(document({"error": {"message": "Rate limit reached"}}, 429, headers={"retry-after": "1"})),
    ),
    Row(
        "rate-limit-ms",
        "429 with retry-after-ms, then sound answers",
        once(document({"error": {"message": "Rate limit reached"}}, 429, headers={"retry-after-ms": "700"})),
    ),
    Row(
        "overloaded-once",
        "503 with Retry-After, then sound answers",
        once(document({"error": {"message": "overloaded"}}, 503, headers={"retry-after": "1"})),
    ),
    Row(
        "retry-after-12",
        "429 with Retry-After of 12 s, then sound answers",
        once(document({"error": {"message": "Rate limit reached"}}, 429, headers={"retry-after": "12"})),
        slow=True,
    ),
    Row("error-500-once", "500, then sound answers", once(error("internal", 500))),
    Row(
        "html-502-once",
        "502 with HTML, then sound answers",
        once(document("<html>Bad Gateway</html>", 502, "text/html")),
    ),
    Row("timeout-408-once", "408, then sound answers", once(error("timeout", 408))),
    Row("cut-once", "a stream that is cut, then sound answers", once(Answer(sse(events(1)).pieces[:2], ends="cut"))),
    Row(
        "reset-once",
        "a connection closed without an answer, then sound answers",
        once(Answer([], status=200, ends="cut")),
    ),
    Row("error-500", "500, always", always(error("internal failure 77", 500)), r"internal failure 77", slow=True),
]

WINDOW: dict[str, tuple[int, object]] = {
    "vllm": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5096 tokens (4096 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    "sglang": (
        400,
        {
            "object": "error",
            "message": "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    "llama-cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the context size or enable context shift",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9000,
                "n_ctx": 4096,
            }
        },
    ),
    "tgi": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000 `inputs` tokens and 100 `max_new_tokens`",
            "error_type": "validation",
        },
    ),
    "lm-studio": (
        400,
        {
            "error": "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input"
        },
    ),
    "ollama": (400, {"error": {"message": "input length exceeds the context length", "type": "invalid_request_error"}}),
    "bedrock": (400, {"message": "Input is too long for requested model."}),
    "openai": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
    ),
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
        },
    ),
}
"""A full window in the words of each engine."""

for _engine, (_status, _body) in WINDOW.items():
    ROWS.append(
        Row(
            f"window-{_engine}",
            f"a full window in the words of {_engine}, after the first answer",
            then(document(_body, _status)),
            r"max_total_tokens",
            scored=True,
        )
    )
ROWS.append(
    Row(
        "window-first",
        "a full window before the first answer",
        always(document(WINDOW["vllm"][1], 400)),
        r"maximum context length",
    )
)

__all__ = ["ROWS", "Asked", "Row"]
