"""A chat endpoint reads a call in text, whatever tokens it was spelled in: its log-probabilities tell."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opencode_env.cli_agent.interception.training_client import spelled_calls

from tests.env.test_kept_logprobs import asking
from tests.gateway.test_chat_answers import HEAD, Answering, answering, ask

__all__ = ["answering"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODY = ['\n{"', "name", '": "', "ba", "sh", '", "arguments": {}}\n']
TOKENS = ["<tool_call>", *BODY, "</tool_call>", "<|im_end|>"]
SPELLED = ["<", "tool", "_call", ">", *BODY, "</", "tool", "_call", ">", "<|im_end|>"]
KIMI = [
    *["<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.bash:0", "<|tool_call_argument_begin|>", "{}"],
    *["<|tool_call_end|>", "<|tool_calls_section_end|>"],
]
CASES: dict[str, tuple[Sequence[str], int, int, float | None]] = {
    "tokens": (TOKENS, 1, 0, 0.0),
    "spelled": (SPELLED, 1, 0, 1.0),
    "one behind the other": ([*TOKENS[:-1], *SPELLED], 2, 0, 1.0),
    "read as text": (SPELLED, 0, 0, 0.0),
    "a mark in the arguments": (
        ["<tool_call>", *BODY[:3], "<", "tool", "_call", ">", *BODY[3:], "</tool_call>"],
        1,
        0,
        0.0,
    ),
    "a section of calls": (KIMI, 1, 0, 0.0),
    "a spelled section": ([*"".join(KIMI)], 1, 0, 1.0),
    "several calls behind one mark": (["[TOOL_CALLS]", "[", "{}, {}", "]"], 2, 0, 0.0),
    "tokens left out": (SPELLED, 1, 3, None),
    "none": ([], 1, 0, None),
    "a tag without an end": (["<", *["_tool", "_call"] * 5000], 1, 0, 0.0),
}
"""What was sampled, how many calls it was read as, tokens that log-probabilities lack, and what is told."""


def whole(tokens: Sequence[str], calls: int, lacking: int) -> dict[str, Any]:
    """An answer as vLLM gives it."""
    function = {"name": "bash", "arguments": "{}"}
    made = [{"id": f"call_{number}", "type": "function", "function": function} for number in range(calls)]
    message = {"role": "assistant", "content": None if calls else "".join(tokens), "tool_calls": made}
    content = [{"token": one, "logprob": -0.5, "bytes": [*one.encode()], "top_logprobs": []} for one in tokens]
    choice = {"index": 0, "message": message, "logprobs": {"content": content}, "finish_reason": "stop"}
    sampled = len(tokens) + lacking
    usage = {"prompt_tokens": 9, "completion_tokens": sampled, "total_tokens": 9 + sampled}
    return {**HEAD, "object": "chat.completion", "choices": [choice], "usage": usage}


@pytest.mark.parametrize("case", CASES)
async def test_a_call_that_was_read_in_ordinary_tokens_is_counted_where_the_endpoint_names_them(
    answering: Answering, case: str
) -> None:
    tokens, calls, lacking, told = CASES[case]
    async with answering(whole=whole(tokens, calls, lacking), whole_asked=True) as rollout:
        choice = await ask(asking(rollout), stream=True, tools=["bash"])
        assert len(choice["message"].get("tool_calls") or ()) == calls
        assert await spelled_calls(rollout.session.ctx, rollout.main) == told


RECORDED = {"token-whole": 0.0, "spelled-whole": 1.0, "spelled-stream": 1.0}
"""Answers of vLLM 0.32.0 with its parser `hermes` to one prompt, with the tokens of the marks wanted or forbidden."""


@pytest.mark.parametrize("name", RECORDED)
async def test_a_real_engine_reads_a_spelled_call_as_a_call_and_its_answer_tells(
    answering: Answering, name: str
) -> None:
    body = (Path(__file__).parent / "recorded" / f"vllm-0.32.0-{name}.txt").read_bytes()
    stream = name.endswith("stream")
    kind = "text/event-stream" if stream else "application/json"
    async with answering(body=body, kind=kind, whole_asked=not stream) as rollout:
        choice = await ask(asking(rollout), stream=True, tools=["bash"])
        (call,) = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "bash", "arguments": '{"command": "echo ire"}'}
        assert await spelled_calls(rollout.session.ctx, rollout.main) == RECORDED[name]
